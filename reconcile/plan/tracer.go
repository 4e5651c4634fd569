package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// tracer finds what goes with a deleted object: what names it as its owner, and what a namespace holds. The program
// need not have read those kinds, so the tracer asks the cluster for the metadata of everything in the namespace of the
// object, and lets the fork read the resources where it has found something. The garbage collector of the fork does the
// rest.
type tracer struct {
	base *base
	fork *http.Client // past the recorder

	mu    sync.Mutex       // one search at a time
	all   []listed         // guarded by mu; nil: not known yet
	known map[string][]dep // guarded by mu, by namespace; "": of all
}

// dep is an object, and the owners that it names.
type dep struct {
	resource schema.GroupVersionResource
	uid      types.UID
	owners   []metav1.OwnerReference
}

func newTracer(b *base, fork *rest.Config) *tracer {
	return &tracer{base: b, fork: &http.Client{Transport: fork.Transport}, known: make(map[string][]dep)}
}

// follow lets the fork read what goes with an object that was deleted.
func (t *tracer) follow(ctx context.Context, w reconciletest.BaseWrite) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.Resource.GroupResource() == definitions.GroupResource() {
		t.base.Approximate(w.Request, "with a definition all objects of its kind go, which are not in the list")
	}
	if err := t.trace(ctx, w); err != nil && ctx.Err() == nil {
		t.base.Approximate(w.Request, fmt.Sprintf("what goes with deleted objects is not known: %v", err))
	}
}

func (t *tracer) trace(ctx context.Context, w reconciletest.BaseWrite) error {
	gone, namespace := w.Old, w.Namespace
	if w.Resource.Resource == "namespaces" && w.Resource.Group == "" {
		namespace = gone.GetName()
	}
	deps, err := t.contents(ctx, w, namespace)
	if err != nil {
		return err
	}
	going, read := map[types.UID]bool{gone.GetUID(): true}, map[schema.GroupVersionResource]bool{}
	whole := namespace != w.Namespace // everything in it goes
	for again := true; again; {
		again = false
		for _, d := range deps {
			if going[d.uid] || !whole && !owned(d, going) {
				continue
			}
			going[d.uid], read[d.resource], again = true, true, true
			for _, ref := range d.owners { // a dependent with another owner stays
				if r, ok := t.resourceOf(ref); ok {
					read[r] = true
				}
			}
		}
	}
	if w.Resource.Resource == "persistentvolumeclaims" || whole {
		read[schema.GroupVersionResource{Version: "v1", Resource: "pods"}] = true // which may use the claim
	}
	var errs []error
	for r := range read {
		errs = append(errs, t.touch(ctx, r, namespace))
	}
	return errors.Join(errs...)
}

func owned(d dep, going map[types.UID]bool) bool {
	for _, ref := range d.owners {
		if going[ref.UID] {
			return true
		}
	}
	return false
}

func (t *tracer) resourceOf(ref metav1.OwnerReference) (schema.GroupVersionResource, bool) {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	for _, one := range t.all {
		if one.kind.GroupKind() == gvk.GroupKind() {
			return one.GroupVersionResource, true
		}
	}
	return schema.GroupVersionResource{}, false
}

// contents returns the metadata of what is in a namespace, or of everything. It is asked for once.
func (t *tracer) contents(ctx context.Context, w reconciletest.BaseWrite, namespace string) ([]dep, error) {
	if deps, ok := t.known[namespace]; ok {
		return deps, nil
	}
	if t.all == nil {
		all, err := t.base.resources(ctx)
		if err != nil {
			return nil, err
		}
		t.all = all
	}
	deps := []dep{}
	for _, one := range t.all {
		if namespace != "" && !one.namespaced || aside(one.GroupResource()) {
			continue
		}
		err := t.base.contents(ctx, one.GroupVersionResource, namespace, func(o metav1.PartialObjectMetadata) {
			deps = append(deps, dep{one.GroupVersionResource, o.UID, o.OwnerReferences}) // and nothing else is kept
		})
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			t.base.Approximate(w.Request, fmt.Sprintf("whether %s go with deleted objects is not known: %v",
				one.GroupResource(), err))
		}
	}
	t.known[namespace] = deps
	return deps, nil
}

// touch lets the fork read a resource, by a list that asks for little.
func (t *tracer) touch(ctx context.Context, r schema.GroupVersionResource, namespace string) error {
	for _, one := range t.all {
		if one.GroupVersionResource == r && !one.namespaced {
			namespace = ""
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://in-memory"+pathOf(r, namespace)+"?limit=1", nil)
	if err != nil {
		return err
	}
	resp, err := t.fork.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	body, err := io.ReadAll(resp.Body)
	var status metav1.Status
	if err == nil {
		err = json.Unmarshal(body, &status)
	}
	if err == nil {
		err = fmt.Errorf("%s: %s", r.Resource, status.Message)
	}
	return err
}
