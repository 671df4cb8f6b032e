package prefill

import (
	"bytes"

	"warmroute/render/openai"
)

// pulled asks vLLM's KV connector to keep the prompt's blocks for another replica, and to
// say in the answer how that replica gets them.
const pulled = `,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,` +
	`"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`

// oneToken returns the members by which a route answers with one token, at once.
func oneToken(r openai.Route) string {
	switch r {
	case openai.Responses:
		return `"stream":false,"max_output_tokens":1`
	case openai.Chat:
		return `"stream":false,"max_tokens":1,"max_completion_tokens":1`
	}
	return `"stream":false,"max_tokens":1`
}

// appendBody appends the parts of the leg's body: an object with the client's members as they
// came, but for those that oneToken replaces. The parts share the memory of the client's body.
func appendBody(parts [][]byte, l *Leg) [][]byte {
	parts = append(parts, []byte("{"+oneToken(l.Route)+pulled))
	from := bytes.IndexByte(l.Body, '{') + 1
	for _, gone := range l.Lengths {
		parts = appendMembers(parts, l.Body[from:gone.From])
		from = gone.To
	}
	end := max(from, bytes.LastIndexByte(l.Body, '}'))
	return append(appendMembers(parts, l.Body[from:end]), brace)
}

// appendMembers appends a comma and the members in a part of an object, without the commas
// and white space around them.
func appendMembers(parts [][]byte, part []byte) [][]byte {
	if part = bytes.Trim(part, ", \t\r\n"); len(part) > 0 {
		return append(parts, comma, part)
	}
	return parts
}

var comma, brace = []byte(","), []byte("}")

// At returns the position in a client's body at which the text of Splice belongs: before the
// last brace. ok is false for a body that is no object.
func At(body []byte) (at int, ok bool) {
	at = bytes.LastIndexByte(body, '}')
	return at, at >= 0
}

// Splice returns the text that gives an object with members one more, kv_transfer_params.
func Splice(params []byte) string { return `,"kv_transfer_params":` + string(params) }
