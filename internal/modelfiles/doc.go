// Package modelfiles finds a model's tokenizer files: in a folder, in the
// Hugging Face cache of this machine, or on a hub, from where it downloads
// them into that cache. Layout and environment variables are those of
// huggingface_hub 2.4 (HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN,
// HF_HUB_OFFLINE, XDG_CACHE_HOME), so that vLLM and this program share files.
//
// Invariant: a file that can be found under a snapshot is complete and, where
// the hub names a SHA-256 or a git hash, equal to it. Downloads go on where an
// earlier one broke off. Only tokenizer files are fetched, never weights, and
// never chat templates in a folder of their own (additional_chat_templates).
//
// A Hub is immutable and safe for concurrent use, by processes too. Fetch does
// network I/O without a time limit of its own beyond those of the connection:
// keep it off the request path. Nothing is logged; tokens are never in errors.
package modelfiles
