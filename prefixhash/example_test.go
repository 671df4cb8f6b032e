package prefixhash_test

import (
	"fmt"

	"warmroute/prefixhash"
)

func ExampleAppendTokens() {
	tokens := make([]uint32, 50) // from a tokenizer, or from a KV event
	root := prefixhash.TokenRoot("qwen3-8b", prefixhash.LoRA{})
	keys := prefixhash.AppendTokens(nil, root, tokens, prefixhash.Blocks{Size: 16}, nil)
	fmt.Println(len(keys), "full blocks")

	// The first 32 tokens alone have the same first keys: a shared prefix.
	shorter := prefixhash.AppendTokens(nil, root, tokens[:32], prefixhash.Blocks{Size: 16}, nil)
	fmt.Println(shorter[1] == keys[1])
	// Output:
	// 3 full blocks
	// true
}

func ExampleRequest_AppendExtras() {
	salt := "tenant-a"
	r := prefixhash.Request{
		CacheSalt: &salt,
		MM:        []prefixhash.MM{{ID: "image", Offset: 20, Length: 30}},
	}
	for i, keys := range r.AppendExtras(nil, 8, 16, 0) {
		fmt.Println(i, keys)
	}
	// Output:
	// 0 [{tenant-a 0 false}]
	// 1 [{image 4 true}]
	// 2 [{image -12 true}]
	// 3 [{image -28 true}]
}

func ExampleVLLM_AppendDigests() {
	seed := "42" // PYTHONHASHSEED of the replicas
	v, err := prefixhash.NewVLLM(prefixhash.VLLMOptions{
		Algorithm:  prefixhash.SHA256CBOR,
		Generation: prefixhash.Tagged,
		Seed:       &seed,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	root, known := v.Root()
	fmt.Println(known)
	tokens := make([]uint32, 64)
	digests := v.AppendDigests(nil, prefixhash.Position{Parent: root}, tokens[:32], 16, prefixhash.Request{})

	// Later, two more blocks: resume behind the second.
	digests = v.AppendDigests(digests, prefixhash.Position{Parent: digests[1], Block: 2}, tokens[32:], 16, prefixhash.Request{})
	whole := v.AppendDigests(nil, prefixhash.Position{Parent: root}, tokens, 16, prefixhash.Request{})
	fmt.Println(len(digests), digests[3] == whole[3])
	// Output:
	// true
	// 4 true
}
