package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
)

// target is an object as its manifest wants it, and the client for its kind.
type target struct {
	desired *unstructured.Unstructured
	client  *informer.Resource[*unstructured.Unstructured]
}

func (t target) String() string {
	if t.desired.GetNamespace() == "" {
		return t.desired.GetKind() + " " + t.desired.GetName()
	}
	return t.desired.GetKind() + " " + t.desired.GetNamespace() + "/" + t.desired.GetName()
}

// readTargets reads the manifests of a file. An object that lives in a namespace and names none belongs to namespace.
func readTargets(cfg *rest.Config, path, namespace string) (targets []target, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	server, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client configuration: %w", err)
	}
	for documents := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		o := &unstructured.Unstructured{}
		switch err := documents.Decode(&o.Object); {
		case errors.Is(err, io.EOF) && len(targets) == 0:
			return nil, fmt.Errorf("%s has no manifest", path)
		case errors.Is(err, io.EOF):
			return targets, nil
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", path, err)
		case len(o.Object) == 0:
			continue // an empty document
		case o.GetName() == "":
			return nil, fmt.Errorf("%s: a %s has no metadata.name", path, o.GetKind())
		}
		t, err := newTarget(cfg, server, o, namespace)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
}

// newTarget asks the server for the resource of the object's kind.
func newTarget(cfg *rest.Config, server discovery.DiscoveryInterface, o *unstructured.Unstructured,
	namespace string) (target, error) {
	known, err := server.ServerResourcesForGroupVersion(o.GetAPIVersion())
	if err != nil {
		return target{}, fmt.Errorf("discover %s: %w", o.GetAPIVersion(), err)
	}
	for _, r := range known.APIResources {
		if r.Kind != o.GetKind() || strings.Contains(r.Name, "/") { // a subresource, such as deployments/status
			continue
		}
		gv, err := schema.ParseGroupVersion(o.GetAPIVersion())
		if err != nil {
			return target{}, err
		}
		client, err := informer.NewResource[*unstructured.Unstructured](cfg, gv.WithResource(r.Name),
			informer.ResourceOptions{})
		if err != nil {
			return target{}, err
		}
		switch {
		case !r.Namespaced:
			o.SetNamespace("")
		case o.GetNamespace() == "":
			o.SetNamespace(namespace)
		}
		return target{o, client.In(o.GetNamespace())}, nil
	}
	return target{}, fmt.Errorf("the server has no kind %s in %s", o.GetKind(), o.GetAPIVersion())
}
