#include "frameworks/tf/graph/wire.h"

namespace haste {
namespace tf {
namespace {

constexpr int kVarintBytes = 10;
constexpr uint64_t kLargestNumber = (uint64_t{1} << 29) - 1;

// Takes a varint off `rest`.
bool TakeVarint(std::string_view* rest, uint64_t* value) {
  *value = 0;
  for (int i = 0; i < kVarintBytes && static_cast<size_t>(i) < rest->size(); ++i) {
    const uint64_t byte = static_cast<unsigned char>((*rest)[i]);
    if (i == kVarintBytes - 1 && byte > 1) return false;  // above 64 bits
    *value |= (byte & 127) << (7 * i);
    if (byte < 128) {
      rest->remove_prefix(i + 1);
      return true;
    }
  }
  return false;
}

}  // namespace

bool WireReader::Fail() {
  ok_ = false;
  rest_ = {};
  return false;
}

bool WireReader::Next(WireField* field) {
  if (rest_.empty()) return false;
  const std::string_view start = rest_;
  *field = {};
  uint64_t key = 0;
  if (!TakeVarint(&rest_, &key)) return Fail();
  const uint64_t number = key >> 3;
  if (number == 0 || number > kLargestNumber) return Fail();
  field->number = static_cast<int>(number);
  field->type = static_cast<WireField::Type>(key & 7);
  uint64_t size = 0;
  switch (field->type) {
    case WireField::kVarint:
      if (!TakeVarint(&rest_, &field->varint)) return Fail();
      break;
    case WireField::kBytes:
      if (!TakeVarint(&rest_, &size)) return Fail();
      break;
    case WireField::kFixed64: size = 8; break;
    case WireField::kFixed32: size = 4; break;
    default: return Fail();  // a group, which TensorFlow does not use
  }
  if (size > rest_.size()) return Fail();
  field->bytes = rest_.substr(0, static_cast<size_t>(size));
  rest_.remove_prefix(static_cast<size_t>(size));
  field->whole = start.substr(0, start.size() - rest_.size());
  return true;
}

bool ReadFields(std::string_view message, std::vector<WireField>* fields) {
  fields->clear();
  WireReader reader(message);
  for (WireField field; reader.Next(&field);) fields->push_back(field);
  return reader.ok();
}

bool ReadBytes(std::string_view message, int number, std::string_view* content) {
  int found = 0;
  WireReader reader(message);
  for (WireField field; reader.Next(&field);) {
    if (field.number != number) continue;
    if (field.type != WireField::kBytes) return false;
    *content = field.bytes;
    ++found;
  }
  return reader.ok() && found == 1;
}

bool ReadEntry(std::string_view entry, std::string_view* key, std::string_view* value) {
  return ReadBytes(entry, 1, key) && ReadBytes(entry, 2, value);
}

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 128; value >>= 7) out->push_back(static_cast<char>((value & 127) | 128));
  out->push_back(static_cast<char>(value));
}

void AppendVarintField(int number, uint64_t value, std::string* out) {
  AppendVarint(static_cast<uint64_t>(number) << 3 | WireField::kVarint, out);
  AppendVarint(value, out);
}

void AppendBytesField(int number, std::string_view content, std::string* out) {
  AppendVarint(static_cast<uint64_t>(number) << 3 | WireField::kBytes, out);
  AppendVarint(content.size(), out);
  out->append(content);
}

}  // namespace tf
}  // namespace haste
