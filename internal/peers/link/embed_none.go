//go:build noembed

package link

import (
	"errors"

	"github.com/nats-io/nats.go"
)

func embed(Config, string, []string) (natsServer, []nats.Option, error) {
	return nil, nil, errors.New("peers.listen: this binary was built without an embedded NATS server (tag noembed); set peers.url to an external one")
}
