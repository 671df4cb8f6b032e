// Package compare runs this router and its rivals on workloads through the simulator: the
// core of `lab compare`. Every policy gets the same requests in the same cell and seed. It
// writes one line for each run, and a table of ratios to the best rival with the noise
// beside it.
//
// Units: seconds, requests per second. A run is a function of its cell, policy and seed.
package compare
