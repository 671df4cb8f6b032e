//go:build kube

package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"
)

// namespaceFile names the namespace of a pod's service account.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// dialTimeout bounds a dial of an API server. A machine that is down does not refuse
// connections, and the kernel repeats a dial ever less often.
const dialTimeout = 3 * time.Second

// connection is a client of an API server.
type connection struct {
	dynamic.Interface
	namespace string // used where none is configured
	close     func() // ends all connections, those of ending watches included
}

// connect makes a client; it sends no request yet.
func connect(o Options) (*connection, error) {
	config, namespace, err := o.config()
	if err != nil {
		return nil, err
	}
	config.UserAgent = "warmroute"
	config.WarningHandler = rest.NoWarnings{} // warnings about deprecated API versions are for the cluster's administrator
	dialer := connrotation.NewDialer((&net.Dialer{Timeout: dialTimeout}).DialContext)
	config.Dial = dialer.DialContext
	over, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("kube: %w", err)
	}
	client, err := dynamic.NewForConfigAndClient(config, over)
	if err != nil {
		return nil, fmt.Errorf("kube: %w", err)
	}
	return &connection{client, namespace, dialer.CloseAll}, nil
}

// config finds the API server and its credentials.
func (o Options) config() (*rest.Config, string, error) {
	if o.Kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, "", errors.New("kubernetes.kubeconfig is not given, and this is no pod of a cluster")
		}
		if err != nil {
			return nil, "", fmt.Errorf("kube: %w", err)
		}
		namespace, err := os.ReadFile(namespaceFile)
		if err != nil && o.Namespace == "" {
			return nil, "", fmt.Errorf("kubernetes.namespace is not given: %w", err)
		}
		return config, strings.TrimSpace(string(namespace)), nil
	}
	c := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: o.Kubeconfig},
		&clientcmd.ConfigOverrides{})
	config, err := c.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("kubernetes.kubeconfig: %q: %w", o.Kubeconfig, err)
	}
	namespace, _, err := c.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("kubernetes.kubeconfig: %q: %w", o.Kubeconfig, err)
	}
	return config, namespace, nil
}

func poolResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "inference.networking.k8s.io", Version: "v1", Resource: "inferencepools"}
}

func podResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

// resultOf maps a request's end to the closed set of the metrics.
func resultOf(err error) string {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return "ok"
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		return "forbidden"
	case apierrors.IsNotFound(err):
		return "not_found" // the API server has no such resource
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return "expired"
	case apierrors.IsTooManyRequests(err):
		return "throttled"
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.As(err, &status):
		return "refused" // any other answer
	}
	return "unreachable"
}
