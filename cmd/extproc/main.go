// Command extproc is warmroute's router: an Envoy external processor that names
// the vLLM replica for a request. See `extproc help`.
package main

func main() { program().Main() }
