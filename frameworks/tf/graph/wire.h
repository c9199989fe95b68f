// Protocol buffers by their wire format: what the graph optimizer reads and writes of a GraphDef.
//
// TensorFlow hands a graph over as bytes. Its classes for them differ between its versions, and the
// op library uses its C API alone, so a few fields are read here and all others are copied.
#ifndef HASTE_FRAMEWORKS_TF_GRAPH_WIRE_H_
#define HASTE_FRAMEWORKS_TF_GRAPH_WIRE_H_

#include <stdint.h>

#include <string>
#include <string_view>
#include <vector>

namespace haste {
namespace tf {

// One field of a message. The views are into the message.
struct WireField {
  enum Type { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  int number = 0;
  Type type = kVarint;
  uint64_t varint = 0;     // of kVarint
  std::string_view bytes;  // the content: of kBytes without its length
  std::string_view whole;  // with the key, as it stands in the message

  bool Is(int wanted, Type of_type) const { return number == wanted && type == of_type; }
};

// Reads the fields of a message in order:
//   WireReader reader(message);
//   for (WireField field; reader.Next(&field);) ...
//   if (!reader.ok()) the message is malformed
class WireReader {
 public:
  explicit WireReader(std::string_view message) : rest_(message) {}

  // False at the end, and from the first malformed field on.
  bool Next(WireField* field);
  bool ok() const { return ok_; }

 private:
  bool Fail();

  std::string_view rest_;
  bool ok_ = true;
};

// All fields of a message. False if it is malformed.
bool ReadFields(std::string_view message, std::vector<WireField>* fields);

// The content of the only field of that number. False if there is none, or more than one, or the
// message is malformed.
bool ReadBytes(std::string_view message, int number, std::string_view* content);

// An entry of a map<string, message>: its key and its value.
bool ReadEntry(std::string_view entry, std::string_view* key, std::string_view* value);

void AppendVarint(uint64_t value, std::string* out);
void AppendVarintField(int number, uint64_t value, std::string* out);
void AppendBytesField(int number, std::string_view content, std::string* out);

}  // namespace tf
}  // namespace haste

#endif  // HASTE_FRAMEWORKS_TF_GRAPH_WIRE_H_
