package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"warmroute/internal/modelfiles"
	"warmroute/internal/rendercli"
	"warmroute/internal/tokcli"
	"warmroute/internal/tokens"
)

// folder is the folder of a model given as a folder or as a hub's
// "owner/name[@revision]", without using the network.
func folder(model string) (string, error) {
	hub, err := modelfiles.New(os.Getenv)
	if err != nil {
		return "", err
	}
	return hub.Find(model)
}

func tokenizeCommand(_ context.Context, args []string, std stdio) error {
	var model, version string
	err := flags(std, "tokenize", args, func(fs *flag.FlagSet) {
		fs.StringVar(&model, "model", "", "`folder` of the model, or owner/name in the Hugging Face cache")
		fs.StringVar(&version, "vllm", "", "vLLM `version` whose treatment of requests is wanted; default: where all agree")
	})
	if err != nil {
		return err
	}
	if model == "" {
		return errors.New("tokenize: -model is missing")
	}
	dir, err := folder(model)
	if err != nil {
		return err
	}
	m, err := tokens.LoadFolder(dir, tokens.Flags{})
	if err != nil {
		return err
	}
	requests, err := m.Requests(version, nil)
	if err != nil {
		return err
	}
	return tokcli.Run(std.in, std.out, m.Encoder, requests)
}

func renderCommand(ctx context.Context, args []string, std stdio) error {
	var o rendercli.Options
	var now string
	text := func(p **string) func(string) error {
		return func(s string) error { *p = &s; return nil }
	}
	err := flags(std, "render", args, func(fs *flag.FlagSet) {
		fs.StringVar(&o.Model, "model", "", "`folder` of the model, or owner/name in the Hugging Face cache")
		fs.StringVar(&o.Template, "template", "", "chat template `file`, instead of a model's")
		fs.StringVar(&now, "now", "", "`time` the template sees, like 2026-03-05T07:08:09; default: the clock")
		fs.Func("bos", "bos_token the template sees", text(&o.BOS))
		fs.Func("eos", "eos_token the template sees", text(&o.EOS))
	})
	if err != nil {
		return err
	}
	if (o.Model == "") == (o.Template == "") {
		return errors.New("render: give one of -model and -template")
	}
	if now != "" {
		if o.Now, err = time.Parse(rendercli.NowLayout, now); err != nil {
			return fmt.Errorf("render: -now %q is not of the form %s", now, rendercli.NowLayout)
		}
	}
	if o.Model != "" {
		if o.Model, err = folder(o.Model); err != nil {
			return err
		}
	}
	return rendercli.Run(ctx, std.in, std.out, o)
}
