package prefill

import (
	"bytes"

	"warmroute/render/openai"
)

// pulled asks vLLM's KV connector to keep the prompt's blocks for another replica, and to
// say in the answer how that replica gets them.
const pulled = `,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,` +
	`"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`

// replaced are the members of a body that a leg does not take over: those that oneToken
// sets, and those that vLLM refuses beside them.
var replaced = map[string]bool{
	"stream": true, "stream_options": true, "n": true, "best_of": true, "min_tokens": true,
	"max_tokens": true, "max_completion_tokens": true, "max_output_tokens": true, "kv_transfer_params": true,
}

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
// came, but for those that are replaced. The parts share the memory of the client's body.
func appendBody(parts [][]byte, l *Leg) ([][]byte, error) {
	parts = append(parts, []byte("{"+oneToken(l.Route)))
	if l.Pull {
		parts = append(parts, []byte(pulled))
	}
	begin, end := -1, 0 // of the members that are taken over, since the last one that is not
	flush := func() {
		if begin >= 0 {
			parts = append(parts, comma, l.Body[begin:end])
		}
		begin = -1
	}
	err := openai.Members(nil, l.Body, func(key []byte, from, to int) {
		switch {
		case replaced[string(key)]:
			flush()
		case begin < 0:
			begin, end = from, to
		default:
			end = to
		}
	})
	flush()
	return append(parts, brace), err
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
