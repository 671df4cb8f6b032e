package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"warmroute/internal/cli"
	"warmroute/internal/modelfiles"
	"warmroute/lab/cli/render"
	"warmroute/lab/cli/tokenize"
	vllm "warmroute/render"
	"warmroute/render/openai"
)

// folder returns the folder of a model, given as a folder or as a hub's
// "owner/name[@revision]". It does not use the network.
func folder(model string) (string, error) {
	hub, err := modelfiles.New(os.Getenv)
	if err != nil {
		return "", err
	}
	return hub.Find(model)
}

func tokenizeCommand(ctx context.Context, args []string, std cli.Stdio) error {
	var model, version, route, at string
	err := flags(std, "tokenize", args, func(fs *flag.FlagSet) {
		fs.StringVar(&model, "model", "", "`folder` of the model, or owner/name in the Hugging Face cache")
		fs.StringVar(&version, "vllm", "", "vLLM `version` to follow; default: only requests on which all versions agree")
		fs.StringVar(&route, "route", "", "`path` of the route if every line is a request body, like /v1/chat/completions; default: each line has its own form")
		fs.StringVar(&at, "now", "", "local `time` of the replicas, like 2026-03-05T07:08:09; default: the clock")
	})
	if err != nil {
		return err
	}
	if model == "" {
		return errors.New("tokenize: -model is missing")
	}
	if _, ok := openai.RouteOf(http.MethodPost, route); route != "" && !ok {
		return fmt.Errorf("tokenize: -route %q is none of the routes with prompts", route)
	}
	now, err := clock(at)
	if err != nil {
		return fmt.Errorf("tokenize: %w", err)
	}
	dir, err := folder(model)
	if err != nil {
		return err
	}
	m, err := vllm.Open(ctx, dir, serversEnvironment(at == "", os.Getenv))
	if err != nil {
		return err
	}
	if version == "" && m.Info().Code != "" {
		version = vllm.CodedVersion
	}
	requests, err := m.Server(ctx, version, now)
	if err != nil {
		return err
	}
	return tokenize.Run(std.In, std.Out, tokenize.Model{Text: m, Requests: requests}, route)
}

// serversEnvironment reads the variables by which vLLM itself sets parts of a gpt-oss
// prompt. dated: one of them may set the day.
func serversEnvironment(dated bool, getenv func(string) string) vllm.Flags {
	on, _ := strconv.Atoi(getenv("VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS"))
	f := vllm.Flags{SystemInstructions: on != 0}
	if dated {
		f.StartDate = getenv("VLLM_SYSTEM_START_DATE")
	}
	return f
}

// clock returns a clock that stands still at the given time; nil: the real clock.
func clock(at string) (func() time.Time, error) {
	if at == "" {
		return nil, nil
	}
	now, err := time.Parse(render.NowLayout, at)
	if err != nil {
		return nil, fmt.Errorf("-now %q is not of the form %s", at, render.NowLayout)
	}
	return func() time.Time { return now }, nil
}

func renderCommand(ctx context.Context, args []string, std cli.Stdio) error {
	var o render.Options
	var now string
	text := func(p **string) func(string) error {
		return func(s string) error { *p = &s; return nil }
	}
	err := flags(std, "render", args, func(fs *flag.FlagSet) {
		fs.StringVar(&o.Model, "model", "", "`folder` of the model, or owner/name in the Hugging Face cache")
		fs.StringVar(&o.Template, "template", "", "chat template `file`, instead of a model's")
		fs.StringVar(&now, "now", "", "`time` in the template, like 2026-03-05T07:08:09; default: the clock")
		fs.Func("bos", "bos_token in the template", text(&o.BOS))
		fs.Func("eos", "eos_token in the template", text(&o.EOS))
	})
	if err != nil {
		return err
	}
	if (o.Model == "") == (o.Template == "") {
		return errors.New("render: give one of -model and -template")
	}
	tells, err := clock(now)
	if err != nil {
		return fmt.Errorf("render: %w", err)
	}
	if tells != nil {
		o.Now = tells()
	}
	if o.Model != "" {
		if o.Model, err = folder(o.Model); err != nil {
			return err
		}
	}
	return render.Run(ctx, std.In, std.Out, o)
}
