// Command extproc is warmroute's router: an Envoy external processor that names
// the vLLM replica a request should go to. See `extproc help`.
package main

func main() { program().Main() }
