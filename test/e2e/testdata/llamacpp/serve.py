"""Serves the model file argv[1] at port argv[2], as llama.cpp's own server does."""
import signal
import sys

import xllamacpp

p = xllamacpp.CommonParams()
p.model.path, p.hostnames, p.port = sys.argv[1], ["127.0.0.1"], int(sys.argv[2])
p.model_alias = {"tiny"}
p.n_ctx, p.n_parallel, p.warmup = 16384, 4, False
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
p.n_threads_http = 4
server = xllamacpp.Server(p)
signal.pause()
