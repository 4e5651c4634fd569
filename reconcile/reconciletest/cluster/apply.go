package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
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

// Apply applies objects, in order, each as a dry run first. Whatever the API server does not like about one is an
// error: a field that it does not know, and a warning, such as that a pod does not meet the security standard of its
// namespace.
func (c *Cluster) Apply(ctx context.Context, objects ...*unstructured.Unstructured) error {
	cfg := c.Config()
	heard := &warnings{}
	cfg.WarningHandler = heard
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	groups, err := restmapper.GetAPIGroupResources(c.client.Discovery())
	if err != nil {
		return fmt.Errorf("find out what the API server knows: %w", err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	for _, o := range objects {
		fail := func(err error) error { return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err) }
		mapping, err := mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
		if err != nil {
			return fail(err)
		}
		body, err := o.MarshalJSON()
		if err != nil {
			return fail(err)
		}
		for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
			_, err := client.Resource(mapping.Resource).Namespace(o.GetNamespace()).Patch(ctx, o.GetName(),
				types.ApplyPatchType, body,
				metav1.PatchOptions{FieldManager: "testcluster", FieldValidation: metav1.FieldValidationStrict,
					DryRun: dryRun})
			if err := errors.Join(err, heard.take()); err != nil {
				return fail(err)
			}
		}
	}
	return nil
}

// warnings are what the API server has to say beside its answers.
type warnings struct {
	mu   sync.Mutex
	said []error // guarded by mu
}

// HandleWarningHeader takes a warning.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, errors.New("warning: "+text))
}

// take returns what was said since the last time, or nil.
func (w *warnings) take() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.said
	w.said = nil
	return errors.Join(said...)
}
