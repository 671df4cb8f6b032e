package simulator

// Hardware has the constants of the model of a replica's engine.
type Hardware struct {
	PrefillToken float64 // s per prefilled token
	PrefillPair  float64 // s per (query, key) pair of attention
	DecodeToken  float64 // s per context token and decode step
	Weights      float64 // s to read the weights once: the least a step takes
	Step         float64 // s of overhead per step
	Sequence     float64 // s per running sequence and step
	Budget       int     // max_num_batched_tokens
	Sequences    int     // max_num_seqs
	Capacity     int     // tokens of KV cache
}

// H100 is Llama 3.1 8B in bf16 on one H100 of 80 GB, from data sheets and the
// model's arithmetic, not measured: 16 GFLOP per token at about 45 % of 989
// TFLOP/s; 128 KiB of KV per token and 16 GB of weights at 80 % of 3.35 TB/s;
// 52 GB left for KV.
func H100() Hardware {
	return Hardware{
		PrefillToken: 35e-6, PrefillPair: 1e-9, DecodeToken: 5.2e-8, Weights: 6e-3, Step: 2e-3, Sequence: 15e-6,
		Budget: 8192, Sequences: 256, Capacity: 400_000,
	}
}

// Prefill returns the engine time of computing u tokens behind m cached ones.
func (h *Hardware) Prefill(u, m int) float64 {
	fu, fm := float64(u), float64(m)
	return h.PrefillToken*fu + h.PrefillPair*fu*(fm+fu/2)
}
