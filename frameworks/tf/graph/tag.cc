#include "frameworks/tf/graph/tag.h"

#include <algorithm>

#include "frameworks/tf/graph/proto.h"
#include "frameworks/tf/graph/wire.h"

namespace haste {
namespace tf {
namespace {

constexpr std::string_view kTagAttribute = "_implements";
constexpr std::string_view kSpecialized = "_GrapplerSpecializedFunc";
constexpr std::string_view kOurs = "Haste";
constexpr std::string_view kConstant = "_input_";  // and the number of the input

struct TypedName {
  std::string_view name;
  uint64_t type = 0;
};

// A number without sign or further characters.
bool ReadNumber(std::string_view text, int* number) {
  if (text.empty() || text.size() > 4) return false;
  *number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    *number = 10 * *number + (c - '0');
  }
  return true;
}

// Names are those that the exporter's function has: inputs_0, inputs_1, …; identity, identity_1, …
bool ReadIndex(std::string_view name, std::string_view base, int* index) {
  if (name.substr(0, base.size()) != base) return false;
  name.remove_prefix(base.size());
  if (name.empty()) {
    *index = 0;
    return true;
  }
  return name[0] == '_' && ReadNumber(name.substr(1), index);
}

bool ReadArgument(std::string_view message, TypedName* argument) {
  WireReader reader(message);
  for (WireField field; reader.Next(&field);) {
    if (field.Is(proto::kArgName, WireField::kBytes)) argument->name = field.bytes;
    if (field.Is(proto::kArgType, WireField::kVarint)) argument->type = field.varint;
  }
  return reader.ok();
}

// The only field of an AttrValue.
bool ReadValue(std::string_view message, WireField* value) {
  WireReader reader(message);
  if (!reader.Next(value)) return false;
  WireField more;
  return !reader.Next(&more) && reader.ok();
}

// Whether a list has elements of `number` alone, or none.
bool ListIsOf(std::string_view list, int number) {
  WireReader reader(list);
  for (WireField field; reader.Next(&field);) {
    if (field.number != number) return false;
  }
  return reader.ok();
}

bool KindIs(std::string_view kind, const WireField& value) {
  using namespace proto;
  if (kind == "bool") return value.Is(kAttrBool, WireField::kVarint);
  if (kind == "float") return value.Is(kAttrFloat, WireField::kFixed32);
  if (kind == "string") return value.Is(kAttrString, WireField::kBytes);
  if (kind == "type") return value.Is(kAttrType, WireField::kVarint);
  if (!value.Is(kAttrList, WireField::kBytes)) return false;
  if (kind == "list(bool)") return ListIsOf(value.bytes, kAttrBool);
  return kind == "list(float)" && ListIsOf(value.bytes, kAttrFloat);
}

bool IsFloat(uint64_t type) {
  return type == proto::kFloat || type == proto::kDouble || type == proto::kHalf ||
         type == proto::kBfloat16;
}

// Reads a function's parts one after the other; each step says what does not fit.
class Parser {
 public:
  Parser(const OpTable& ops, Tag* tag, std::string* problem)
      : ops_(ops), tag_(tag), problem_(problem) {}

  TagResult Read(std::string_view function);

 private:
  TagResult Find(std::string_view function);
  TagResult ReadAttributes();
  TagResult ReadAttribute(std::string_view entry);
  bool ReadConstant(std::string_view name, const WireField& value);
  bool ReadSignature();
  bool Map(const std::vector<TypedName>& present, const std::vector<std::string>& of_op,
           std::string_view base, std::vector<int>* indices);
  bool HasAllInputs();

  TagResult Unknown(const std::string& what) {
    *problem_ = what;
    return TagResult::kUnknown;
  }
  TagResult Broken(const std::string& what) {
    *problem_ = "the tag of function " + std::string(tag_->function) + " for " +
                std::string(tag_->op) + " does not fit: " + what;
    return TagResult::kBroken;
  }

  const OpTable& ops_;
  Tag* const tag_;
  std::string* const problem_;
  const OpShape* op_ = nullptr;
  std::string_view implements_;  // NameAttrList
  std::string_view signature_;   // OpDef
  bool specialized_ = false;
  uint64_t version_ = 0, arguments_ = 0;
  size_t known_attributes_ = 0;
};

TagResult Parser::Find(std::string_view function) {
  bool tagged = false;
  WireReader reader(function);
  for (WireField field; reader.Next(&field);) {
    if (field.Is(proto::kFunctionSignature, WireField::kBytes)) signature_ = field.bytes;
    if (!field.Is(proto::kFunctionAttr, WireField::kBytes)) continue;
    std::string_view key, value;
    if (!ReadEntry(field.bytes, &key, &value)) return TagResult::kNone;
    if (key == kSpecialized) specialized_ = true;
    // Whatever else it may hold is not ours.
    if (key == kTagAttribute) tagged = ReadBytes(value, proto::kAttrFunction, &implements_);
  }
  if (!reader.ok() || !tagged) return TagResult::kNone;
  if (!ReadBytes(implements_, proto::kListName, &tag_->op)) return TagResult::kNone;
  if (tag_->op.substr(0, kOurs.size()) != kOurs) return TagResult::kNone;
  return ReadBytes(signature_, proto::kOpName, &tag_->function) ? TagResult::kTag
                                                                : TagResult::kNone;
}

TagResult Parser::ReadAttribute(std::string_view entry) {
  std::string_view name, message;
  WireField value;
  if (!ReadEntry(entry, &name, &message) || !ReadValue(message, &value)) {
    return Broken("an attribute of it is malformed");
  }
  if (name == "_version" || name == "_arguments") {
    if (!value.Is(proto::kAttrInt, WireField::kVarint)) return Broken(std::string(name));
    (name == "_version" ? version_ : arguments_) = value.varint;
    return TagResult::kTag;
  }
  if (name.substr(0, kConstant.size()) == kConstant) {
    return ReadConstant(name, value) ? TagResult::kTag : Broken(std::string(name));
  }
  const auto known = op_->attributes.find(name);
  if (known == op_->attributes.end() || !KindIs(known->second, value)) {
    return Unknown("attribute " + std::string(name) + " of " + std::string(tag_->op));
  }
  if (name == "T") tag_->type = value.varint;
  tag_->attributes.push_back(entry);
  ++known_attributes_;
  return TagResult::kTag;
}

bool Parser::ReadConstant(std::string_view name, const WireField& value) {
  int index = 0;
  if (!value.Is(proto::kAttrTensor, WireField::kBytes)) return false;
  if (!ReadNumber(name.substr(kConstant.size()), &index)) return false;
  WireReader reader(value.bytes);
  for (WireField field; reader.Next(&field);) {
    if (field.Is(proto::kTensorType, WireField::kVarint)) {
      tag_->constant_types[index] = field.varint;
    }
  }
  return reader.ok() && tag_->constant_types.count(index) > 0 &&
         static_cast<size_t>(index) < op_->inputs.size() &&
         tag_->constants.emplace(index, value.bytes).second;
}

TagResult Parser::ReadAttributes() {
  std::vector<WireField> fields;
  if (!ReadFields(implements_, &fields)) return Broken("it is malformed");
  // The version first: what else a newer one has may mean something else.
  for (const WireField& field : fields) {
    std::string_view name, message;
    WireField value;
    if (!field.Is(proto::kListAttr, WireField::kBytes)) continue;
    if (ReadEntry(field.bytes, &name, &message) && name == "_version" &&
        ReadValue(message, &value) && value.Is(proto::kAttrInt, WireField::kVarint)) {
      version_ = value.varint;
    }
  }
  if (version_ != kTagVersion) return Unknown("tags of version " + std::to_string(version_));
  const auto op = ops_.find(tag_->op);
  if (op == ops_.end()) return Unknown("op " + std::string(tag_->op));
  op_ = &op->second;
  for (const WireField& field : fields) {
    if (!field.Is(proto::kListAttr, WireField::kBytes)) continue;
    const TagResult result = ReadAttribute(field.bytes);
    if (result != TagResult::kTag) return result;
  }
  if (known_attributes_ != op_->attributes.size()) return Broken("an attribute is missing");
  if (!IsFloat(tag_->type)) return Unknown("this T of " + std::string(tag_->op));
  if (arguments_ != op_->inputs.size()) return Broken("the op has another number of inputs");
  return TagResult::kTag;
}

// Which of the op's inputs or outputs those of the function are.
bool Parser::Map(const std::vector<TypedName>& present, const std::vector<std::string>& of_op,
                 std::string_view base, std::vector<int>* indices) {
  if (!specialized_ && present.size() != of_op.size()) return false;
  int last = -1;
  for (size_t i = 0; i < present.size(); ++i) {
    int index = static_cast<int>(i);
    // A copy that lacks some keeps the names of those that it has.
    if (present.size() != of_op.size() && !ReadIndex(present[i].name, base, &index)) return false;
    if (index <= last || static_cast<size_t>(index) >= of_op.size()) return false;
    if (present[i].type != TypeNumber(of_op[index], tag_->type)) return false;
    indices->push_back(index);
    last = index;
  }
  return true;
}

bool Parser::ReadSignature() {
  std::vector<TypedName> inputs, outputs;
  WireReader reader(signature_);
  for (WireField field; reader.Next(&field);) {
    if (field.number != proto::kOpInput && field.number != proto::kOpOutput) continue;
    std::vector<TypedName>& arguments = field.number == proto::kOpInput ? inputs : outputs;
    arguments.emplace_back();
    if (!ReadArgument(field.bytes, &arguments.back())) return false;
  }
  return reader.ok() && Map(inputs, op_->inputs, "inputs", &tag_->inputs) &&
         Map(outputs, op_->outputs, "identity", &tag_->outputs);
}

// What the function lacks must be in the tag: nothing else tells what it was.
bool Parser::HasAllInputs() {
  for (size_t i = 0; i < op_->inputs.size(); ++i) {
    const int index = static_cast<int>(i);
    if (std::count(tag_->inputs.begin(), tag_->inputs.end(), index) > 0) continue;
    const auto type = tag_->constant_types.find(index);
    if (type == tag_->constant_types.end()) return false;
    if (type->second != TypeNumber(op_->inputs[i], tag_->type)) return false;
  }
  return true;
}

TagResult Parser::Read(std::string_view function) {
  TagResult result = Find(function);
  if (result != TagResult::kTag) return result;
  result = ReadAttributes();
  if (result != TagResult::kTag) return result;
  if (!ReadSignature()) return Broken("its arguments or results are not the op's");
  if (!HasAllInputs()) return Broken("an input became a constant of the function");
  return TagResult::kTag;
}

}  // namespace

uint64_t TypeNumber(std::string_view spelt, uint64_t type) {
  if (spelt == "T") return type;
  if (spelt == "float") return proto::kFloat;
  if (spelt == "int8") return proto::kInt8;
  if (spelt == "bool") return proto::kBool;
  if (spelt == "int64") return proto::kInt64;
  return spelt == "int32" ? uint64_t{proto::kInt32} : 0;
}

TagResult ReadTag(std::string_view function, const OpTable& ops, Tag* tag, std::string* problem) {
  *tag = {};
  return Parser(ops, tag, problem).Read(function);
}

}  // namespace tf
}  // namespace haste
