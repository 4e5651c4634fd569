package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// Decode reads the objects in documents of YAML, in order.
func Decode(documents []byte) (objects []*unstructured.Unstructured, err error) {
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(documents), 4096); ; {
		var o unstructured.Unstructured
		err := decoder.Decode(&o.Object)
		switch {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("decode the document after object %d: %w", len(objects), err)
		case len(o.Object) > 0:
			objects = append(objects, &o)
		}
	}
}

// Apply applies objects by server-side apply, in order, each as a dry run first. After a CustomResourceDefinition it
// waits until the API server serves the new resource, so objects of that kind may follow, and in the end until it
// grants the rights of all bindings, so a program that looks for its rights may follow.
//
// Apply returns an error if the API server refuses an object, does not know one of its fields, or answers with a
// warning, such as that a pod does not meet the security standard of its namespace. The objects after it are not
// applied then.
func (c *Cluster) Apply(ctx context.Context, objects ...*unstructured.Unstructured) error {
	cfg := c.Config()
	heard := &warnings{}
	cfg.WarningHandler = heard
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.client.Discovery()))
	for _, o := range objects {
		if err := apply(ctx, client, mapper, heard, o); err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	for _, o := range objects { // the role may come after its binding
		if err := awaitBinding(ctx, c.client, o); err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

func apply(ctx context.Context, client dynamic.Interface, mapper meta.ResettableRESTMapper,
	heard *warnings, o *unstructured.Unstructured) error {
	mapping, err := mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
	if err != nil {
		return err
	}
	body, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
		_, err := client.Resource(mapping.Resource).Namespace(o.GetNamespace()).Patch(ctx, o.GetName(),
			types.ApplyPatchType, body,
			metav1.PatchOptions{FieldManager: "cluster", FieldValidation: metav1.FieldValidationStrict, DryRun: dryRun})
		if err := errors.Join(err, heard.take()); err != nil {
			return err
		}
	}
	if o.GroupVersionKind().GroupKind() == definitions {
		return awaitDefinition(ctx, client, mapper, o)
	}
	return nil
}

var definitions = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// awaitDefinition waits until each served version of a CustomResourceDefinition is discovered and can be listed.
func awaitDefinition(ctx context.Context, client dynamic.Interface, mapper meta.ResettableRESTMapper,
	o *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
	for _, v := range versions {
		version, ok := v.(map[string]any)
		if !ok || version["served"] != true {
			continue
		}
		name := fmt.Sprint(version["name"])
		what := fmt.Sprintf("%s of %s/%s is served", kind, group, name)
		err := eventually(ctx, what, func(ctx context.Context) (bool, error) {
			mapper.Reset()
			mapping, err := mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind}, name)
			if err != nil {
				return false, err
			}
			_, err = client.Resource(mapping.Resource).List(ctx, metav1.ListOptions{Limit: 1})
			return err == nil, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// warnings collects the warnings that come with the answers of the API server.
type warnings struct {
	mu   sync.Mutex
	said []error // guarded by mu
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, errors.New("warning: "+text))
}

// take returns the warnings since the last call as one error, or nil.
func (w *warnings) take() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.said
	w.said = nil
	return errors.Join(said...)
}
