// Package firsttoken holds no code: its test measures how far from the truth
// the router's idea of first tokens is, on a simulated replica over real
// sockets, or on the vLLM server named in WARMROUTE_FIRSTTOKEN
// ("address,events endpoint,block size,model").
package firsttoken
