package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"warmroute/internal/bearer"
	"warmroute/internal/certs"
	"warmroute/internal/problems"
)

// required returns every problem with the files, folders and variables of this machine
// without which the router does not start. The parts of the router read them again.
func (c Config) required() error {
	var p surrounding
	p.server("tls", c.TLS)
	p.token("admin", c.Admin.TokenFile)
	if s := c.IndexService; s.Listen != "" {
		p.server("index_service.tls", s.TLS)
	}
	p.token("index_service", c.IndexService.TokenFile)
	if c.XDS.Listen != "" {
		p.server("xds.tls", c.XDS.TLS)
	}
	_, err := c.Fleet.HTTP.Client(1)
	p.Add("", err)
	if c.Peers.Validate() == nil {
		p.Add("", c.Peers.Readable())
	}
	if c.Tracing.Enabled() {
		p.client("tracing.tls", c.Tracing.TLS)
	}
	if name := c.Kubernetes.Kubeconfig; name != "" {
		_, err := os.ReadFile(name)
		p.Add("kubernetes.kubeconfig: ", err)
	}
	return p.Err()
}

// expected returns every problem with the surroundings with which the router starts, and
// lacks something: the peers' index, files for Envoy, a trace, a model's tokenizer.
func (c Config) expected() error {
	var p surrounding
	p.client("warm_up.tls", c.WarmUp.TLS)
	if folder := c.XDS.State; folder != "" {
		p.Add("xds.state: ", writable(folder))
	}
	if name := c.Filter.TraceFile; name != "" {
		p.Add("filter.trace_file: ", appendable(name))
	}
	for i, m := range c.Tokens.Models {
		if m.ChatTemplate != "" {
			_, err := os.ReadFile(m.ChatTemplate)
			p.Add(fmt.Sprintf("tokens.models[%d].chat_template: ", i), err)
		}
	}
	_, err := c.checkFiles()
	p.Add("", err)
	return p.Err()
}

// surrounding collects problems of this machine.
type surrounding struct{ problems.List }

// server adds the problems with the files of a port's TLS. Validate reports the others.
func (p *surrounding) server(section string, o certs.Options) {
	if o.Enabled() && o.Validate() == nil {
		_, err := certs.New(o, nil)
		p.Add(section+".", err)
	}
}

// client is server for the TLS of a client.
func (p *surrounding) client(section string, o certs.ClientOptions) {
	if o.Enabled && o.Validate("") == nil {
		_, err := certs.Client(o)
		p.Add(section+".", err)
	}
}

// token adds the problem with the token's file of a section.
func (p *surrounding) token(section, file string) {
	_, err := bearer.File(file)
	p.Add(section+".", err)
}

// unreadTokens names the files that hold no token any more: the former one stays in force.
func (c Config) unreadTokens() (notes []string) {
	for _, of := range [][2]string{{"admin", c.Admin.TokenFile}, {"index_service", c.IndexService.TokenFile}, {"fleet", c.Fleet.HTTP.TokenFile}} {
		if _, err := bearer.File(of[1]); err != nil {
			notes = append(notes, of[0]+"."+err.Error()+": the previous token stays in force")
		}
	}
	return notes
}

// writable returns the reason why files cannot be made in a folder, which need not exist
// yet. It makes nothing.
func writable(folder string) error {
	info, err := os.Stat(folder)
	if above := filepath.Dir(folder); errors.Is(err, fs.ErrNotExist) && above != folder {
		return writable(above)
	}
	if err == nil && !info.IsDir() {
		return fmt.Errorf("%s is not a folder", folder)
	}
	if err == nil {
		err = unix.Access(folder, unix.W_OK|unix.X_OK)
	}
	if err != nil {
		return fmt.Errorf("files cannot be made in %s: %w", folder, err)
	}
	return nil
}

// appendable returns the reason why a file cannot be appended to and moved. Its folder
// must exist.
func appendable(name string) error {
	if _, err := os.Stat(filepath.Dir(name)); err != nil {
		return fmt.Errorf("the folder of %s: %w", name, err)
	}
	switch info, err := os.Stat(name); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", name)
	case unix.Access(name, unix.W_OK) != nil:
		return fmt.Errorf("%s cannot be written", name)
	}
	return writable(filepath.Dir(name))
}
