package testenv

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"warmroute/render/testkit/checkout"
)

// VLLM is a running vLLM server.
type VLLM struct {
	*Process
	Addr   string // "127.0.0.1:port"
	Events string // where it publishes KV events, tcp://127.0.0.1:port
	Replay string
	start  func(dir string) (*Process, error)
}

// RestartVLLM starts an ended server again, with the same addresses and flags.
func RestartVLLM(dir string, old *VLLM) (*VLLM, error) {
	p, err := old.start(dir)
	if err != nil {
		return nil, err
	}
	v := *old
	v.Process = p
	return &v, nil
}

// VLLMOptions say how to run vLLM.
type VLLMOptions struct {
	Version   string // installed by scripts/install-vllm.sh
	Name      string // of the process and its log
	Model     string // folder of the model, see TinyModel
	Served    string // served model name
	BlockSize int    // tokens; 0.32's CPU attention requires a multiple of 32
	Flags     []string
	Env       []string
}

// StartVLLM starts vLLM without waiting for it: booting takes a minute or two.
// Wait for /health with WaitHTTP.
func StartVLLM(dir string, o VLLMOptions) (*VLLM, error) {
	root := checkout.Root()
	ports, err := FreePorts(3)
	if err != nil {
		return nil, err
	}
	v := &VLLM{
		Addr:   fmt.Sprintf("127.0.0.1:%d", ports[0]),
		Events: fmt.Sprintf("tcp://127.0.0.1:%d", ports[1]),
		Replay: fmt.Sprintf("tcp://127.0.0.1:%d", ports[2]),
	}
	// "tcp://*:port" binds; an address without a wildcard would connect.
	events := fmt.Sprintf(`{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:%d","replay_endpoint":"tcp://*:%d","topic":"kv@%s@%s"}`,
		ports[1], ports[2], v.Addr, o.Served)
	args := []string{"serve", o.Model, "--served-model-name", o.Served, "--load-format", "dummy",
		"--host", "127.0.0.1", "--port", strconv.Itoa(ports[0]), "--enforce-eager", "--max-model-len", "4000",
		"--block-size", strconv.Itoa(o.BlockSize), "--enable-prefix-caching", "--enable-prompt-tokens-details",
		"--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--kv-events-config", events}
	if !strings.HasPrefix(o.Version, "0.2") {
		args = append(args, "--enable-scale-out") // 0.32's /render routes
	}
	if o.Version != "0.21.0" { // it does not allow it on CPUs
		// The worker is in the engine's process: one import of torch and vLLM less, and a gigabyte.
		o.Env = append(o.Env, "VLLM_ENABLE_V1_MULTIPROCESSING=0")
	}
	env := append([]string{"VLLM_SERVER_DEV_MODE=1", "VLLM_HOST_IP=127.0.0.1", "HF_HUB_OFFLINE=1", "VLLM_CPU_KVCACHE_SPACE=1",
		"VLLM_NO_USAGE_STATS=1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1",
		"PYTHONDONTWRITEBYTECODE=", // otherwise each boot compiles vLLM, torch and transformers again: half its time
		// Two replicas share two cores; left to itself each would bind its threads to the same one.
		"VLLM_CPU_OMP_THREADS_BIND=nobind", "OMP_NUM_THREADS=1"}, o.Env...)
	program := filepath.Join(root, ".cache", "vllm", o.Version, "bin", "vllm")
	v.start = func(dir string) (*Process, error) {
		cmd := exec.Command(program, append(args, o.Flags...)...)
		cmd.Env = env
		return start(dir, o.Name, cmd, syscall.SIGTERM) // killed, it would leave its engine, a process of its own, behind
	}
	if v.Process, err = v.start(dir); err != nil {
		return nil, err
	}
	return v, nil
}

// tinyConfig is a Qwen3 of two layers: real architecture and tokenizer, weights made up at load.
const tinyConfig = `{"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","hidden_size":128,"intermediate_size":256,
"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":2,"head_dim":64,"vocab_size":151936,
"max_position_embeddings":32768,"rms_norm_eps":1e-6,"rope_theta":1000000.0,"torch_dtype":"bfloat16",
"tie_word_embeddings":true,"bos_token_id":151643,"eos_token_id":151645,"hidden_act":"silu","attention_bias":false}`

// tinyGemma is a Gemma 3 of four layers: three KV cache groups with a window of
// 512 tokens and one of full attention.
const tinyGemma = `{"architectures":["Gemma3ForCausalLM"],"model_type":"gemma3_text","hidden_size":128,"intermediate_size":256,
"num_hidden_layers":4,"num_attention_heads":2,"num_key_value_heads":2,"head_dim":64,"vocab_size":262208,
"max_position_embeddings":32768,"rms_norm_eps":1e-6,"rope_theta":1000000.0,"rope_local_base_freq":10000.0,"sliding_window":512,
"layer_types":["sliding_attention","sliding_attention","sliding_attention","full_attention"],"query_pre_attn_scalar":64,
"torch_dtype":"bfloat16","tie_word_embeddings":true,"bos_token_id":2,"eos_token_id":1,"pad_token_id":0,
"hidden_activation":"gelu_pytorch_tanh","attention_bias":false}`

// tinyNext is a Qwen3-Next of four layers: three KV cache groups of Mamba states
// and one of full attention, in blocks that vLLM widens to 96 tokens.
const tinyNext = `{"architectures":["Qwen3NextForCausalLM"],"model_type":"qwen3_next","hidden_size":128,"intermediate_size":256,
"num_hidden_layers":4,"num_attention_heads":2,"num_key_value_heads":2,"head_dim":64,"vocab_size":151936,
"linear_conv_kernel_dim":4,"linear_key_head_dim":64,"linear_value_head_dim":64,"linear_num_key_heads":2,"linear_num_value_heads":2,
"num_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":128,"shared_expert_intermediate_size":128,"decoder_sparse_step":1,
"max_position_embeddings":32768,"rms_norm_eps":1e-6,"rope_theta":1000000.0,"partial_rotary_factor":0.25,"full_attention_interval":4,
"torch_dtype":"bfloat16","tie_word_embeddings":true,"bos_token_id":151643,"eos_token_id":151645,"hidden_act":"silu","attention_bias":false}`

// tiny are the models that TinyModel makes: a configuration and the model whose tokenizer
// they use.
var tiny = map[string]struct{ config, tokenizer string }{
	"qwen3":      {tinyConfig, "qwen3"},
	"gemma3":     {tinyGemma, "gemma3"},
	"qwen3-next": {tinyNext, "qwen3"},
}

// TinyModel makes the folder of a tiny model in dir: "qwen3", "gemma3" or
// "qwen3-next", with its real tokenizer, which scripts/fetch-models.sh has put
// into .cache/models.
func TinyModel(dir, architecture string) (string, error) {
	root := checkout.Root()
	kind, ok := tiny[architecture]
	if !ok {
		return "", fmt.Errorf("testenv: no tiny model %q", architecture)
	}
	model := filepath.Join(dir, "tiny-"+architecture)
	if err := os.MkdirAll(model, 0o755); err != nil {
		return "", fmt.Errorf("testenv: %w", err)
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join(root, ".cache", "models", kind.tokenizer, name))
		if err != nil {
			return "", fmt.Errorf("testenv: the %s tokenizer is missing, run scripts/fetch-models.sh: %w", kind.tokenizer, err)
		}
		if err := os.WriteFile(filepath.Join(model, name), b, 0o644); err != nil {
			return "", fmt.Errorf("testenv: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(model, "config.json"), []byte(kind.config), 0o644); err != nil {
		return "", fmt.Errorf("testenv: %w", err)
	}
	return model, nil
}

// TinyAdapter makes a LoRA adapter of rank 4 for the "qwen3" model in dir and
// returns its folder.
func TinyAdapter(dir string) (string, error) {
	const rank, wide = 4, 128
	type tensor struct {
		Type    string `json:"dtype"`
		Shape   [2]int `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header, size := map[string]tensor{}, 0
	add := func(name string, rows, columns int) {
		header[name] = tensor{"BF16", [2]int{rows, columns}, [2]int{size, size + 2*rows*columns}}
		size += 2 * rows * columns
	}
	for layer := range 2 {
		for _, module := range []string{"q_proj", "v_proj"} {
			name := fmt.Sprintf("base_model.model.model.layers.%d.self_attn.%s", layer, module)
			add(name+".lora_A.weight", rank, wide)
			add(name+".lora_B.weight", wide, rank)
		}
	}
	head, err := json.Marshal(header)
	if err != nil {
		return "", fmt.Errorf("testenv: make a LoRA adapter: %w", err)
	}
	for len(head)%8 > 0 { // tensors are aligned
		head = append(head, ' ')
	}
	file := append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...)
	for r := rand.New(rand.NewPCG(1, 0)); size > 0; size -= 2 { // a bfloat16 is a float32's upper half
		file = binary.LittleEndian.AppendUint16(file, uint16(math.Float32bits(float32(r.NormFloat64()))>>16))
	}
	out := filepath.Join(dir, "tiny-lora")
	if err := os.MkdirAll(out, 0o755); err != nil {
		return "", fmt.Errorf("testenv: make a LoRA adapter: %w", err)
	}
	for name, data := range map[string][]byte{"adapter_model.safetensors": file, "adapter_config.json": []byte(adapterConfig)} {
		if err := os.WriteFile(filepath.Join(out, name), data, 0o644); err != nil {
			return "", fmt.Errorf("testenv: make a LoRA adapter: %w", err)
		}
	}
	return out, nil
}

const adapterConfig = `{"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 4, "lora_alpha": 8, "lora_dropout": 0.0, "bias": "none",
"target_modules": ["q_proj", "v_proj"], "base_model_name_or_path": "tiny"}`
