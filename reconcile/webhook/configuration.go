package webhook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/url"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/informer"
)

var (
	admissions  = schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	definitions = schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}
)

// target names a configuration.
type target struct {
	resource *informer.Resource[*unstructured.Unstructured]
	name     string
}

func (t target) String() string { return t.resource.GroupVersionResource().Resource + " " + t.name }

// configuration is a target as it was read.
type configuration struct {
	target
	is       *unstructured.Unstructured
	webhooks []string       // the names; none of a CustomResourceDefinition
	clients  []clientConfig // one for each name, or that of the CustomResourceDefinition
}

func (t target) read(ctx context.Context) (configuration, error) {
	c := configuration{target: t}
	var err error
	if c.is, err = t.resource.Get(ctx, t.name, metav1.GetOptions{}); err != nil {
		return c, err
	}
	var read struct {
		Webhooks []struct {
			Name         string       `json:"name"`
			ClientConfig clientConfig `json:"clientConfig"`
		} `json:"webhooks"`
		Spec struct {
			Conversion struct {
				Webhook *struct {
					ClientConfig clientConfig `json:"clientConfig"`
				} `json:"webhook"`
			} `json:"conversion"`
		} `json:"spec"`
	}
	data, err := c.is.MarshalJSON()
	if err != nil {
		return c, err
	}
	if err := decode(data, &read); err != nil {
		return c, err
	}
	for _, hook := range read.Webhooks {
		c.webhooks, c.clients = append(c.webhooks, hook.Name), append(c.clients, hook.ClientConfig)
	}
	if hook := read.Spec.Conversion.Webhook; hook != nil {
		c.clients = append(c.clients, hook.ClientConfig)
	}
	if len(c.clients) == 0 {
		return c, errors.New("it has no webhook")
	}
	return c, nil
}

// has reports whether all webhooks of the configuration have a bundle.
func (c configuration) has(bundle []byte) bool {
	for _, client := range c.clients {
		if !bytes.Equal(client.CABundle, bundle) {
			return false
		}
	}
	return true
}

// entrust writes the bundle into the configuration. It fails with a conflict if that has changed since it was read.
func (c configuration) entrust(ctx context.Context, bundle []byte, manager string) error {
	content := map[string]any{"apiVersion": c.is.GetAPIVersion(), "kind": c.is.GetKind(),
		"metadata": map[string]any{"name": c.name, "resourceVersion": c.is.GetResourceVersion()}}
	trust := map[string]any{"caBundle": bundle}
	if len(c.webhooks) == 0 {
		content["spec"] = map[string]any{"conversion": map[string]any{"webhook": map[string]any{"clientConfig": trust}}}
	} else {
		var webhooks []any
		for _, name := range c.webhooks {
			webhooks = append(webhooks, map[string]any{"name": name, "clientConfig": trust})
		}
		content["webhooks"] = webhooks
	}
	apply, err := json.Marshal(content)
	if err != nil {
		return err
	}
	_, err = c.resource.Patch(ctx, c.name, types.ApplyPatchType, apply, metav1.PatchOptions{
		FieldManager: manager, Force: new(true)})
	return err
}

// clientConfig is where a webhook is, in all three kinds of configurations.
type clientConfig struct {
	CABundle []byte  `json:"caBundle"`
	URL      *string `json:"url"`
	Service  *struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		Port      *int32 `json:"port"`
	} `json:"service"`
}

// address is where the API server connects to, and the name that it asks for; empty if there is none.
func (c clientConfig) address() (address, host string) {
	if c.Service != nil {
		port := int32(443)
		if c.Service.Port != nil {
			port = *c.Service.Port
		}
		host = c.Service.Name + "." + c.Service.Namespace + ".svc"
		return net.JoinHostPort(host, strconv.Itoa(int(port))), host
	}
	if c.URL == nil {
		return "", ""
	}
	u, err := url.Parse(*c.URL)
	if err != nil || u.Host == "" {
		return "", ""
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")), u.Hostname()
}
