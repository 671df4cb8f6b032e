package kvevents

// field is one field of an event.
type field uint8

const (
	other field = iota
	blockHashes
	parentHash
	tokenIDs
	blockSize
	loraID
	medium
	loraName
	extraKeys
	groupIdx
	specKind
	specWindow
	lookahead
	locality
	cacheSalt
)

var fieldNames = [...]string{other: "other", blockHashes: "block_hashes", parentHash: "parent_block_hash",
	tokenIDs: "token_ids", blockSize: "block_size", loraID: "lora_id", medium: "medium", loraName: "lora_name",
	extraKeys: "extra_keys", groupIdx: "group_idx", specKind: "kv_cache_spec_kind", specWindow: "kv_cache_spec_sliding_window",
	lookahead: "lookahead_token_ids", locality: "locality", cacheSalt: "cache_salt"}

// Fields that an event must have. lora_id, medium and lora_name have no default in
// vLLM either, but publishers older than them leave them out.
const (
	storedRequired  = 1<<blockHashes | 1<<parentHash | 1<<tokenIDs | 1<<blockSize
	removedRequired = 1 << blockHashes
)

// fieldsByName has the fields by their names.
var fieldsByName = func() map[string]field {
	all := make(map[string]field, len(fieldNames))
	for f, name := range fieldNames {
		all[name] = field(f)
	}
	return all
}()

func fieldOf(name []byte) field { return fieldsByName[string(name)] }

func firstField(set uint16) string {
	for f, name := range fieldNames {
		if set&(1<<f) != 0 {
			return name
		}
	}
	return "other"
}
