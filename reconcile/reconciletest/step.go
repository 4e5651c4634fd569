package reconciletest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	sigsyaml "sigs.k8s.io/yaml"
)

// Step is something that a user does. Make one with [Apply], [ApplyYAML], [Delete], [DeleteWith], [Wait] or
// [StepFunc].
type Step struct {
	name string
	do   func(ctx context.Context, s *Server) error
	// documents are the manifests that the step applies, as text; nil: it does something else.
	documents []string
	// wait is how long the step takes, in which the program goes on.
	wait time.Duration
}

// Apply returns a step for each file: it applies the file's manifests, as kubectl apply --server-side does. A file that
// is named twice makes two steps, and Check expects the same end after both.
func Apply(files ...string) []Step {
	var steps []Step
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			steps = append(steps, Step{name: "apply " + file, do: func(context.Context, *Server) error { return err }})
			continue
		}
		steps = append(steps, applying("apply "+file, data))
	}
	return steps
}

// ApplyYAML returns a step for each text: it applies the manifests of the text, as [Apply] does those of a file.
func ApplyYAML(texts ...string) []Step {
	var steps []Step
	for _, text := range texts {
		steps = append(steps, applying("", []byte(text)))
	}
	return steps
}

func applying(name string, data []byte) Step {
	step := Step{}
	err := eachDocument(data, func(document []byte) error {
		if text := strings.TrimSpace(string(document)); text != "" {
			step.documents = append(step.documents, text)
		}
		return nil
	})
	if err == nil && len(step.documents) == 0 {
		err = errors.New("there is no manifest in it")
	}
	step.name = cmp.Or(name, "apply "+namesOf(step.documents))
	step.do = applyAll(step.documents)
	if err != nil {
		step.do = func(context.Context, *Server) error { return err }
	}
	return step
}

func applyAll(documents []string) func(ctx context.Context, s *Server) error {
	return func(ctx context.Context, s *Server) error {
		for _, document := range documents {
			if err := applyDocument(ctx, s, document); err != nil {
				return err
			}
		}
		return nil
	}
}

// leaving returns the step without some of its manifests.
func (s Step) leaving(out []bool) Step {
	var kept []string
	for i, document := range s.documents {
		if !out[i] {
			kept = append(kept, document)
		}
	}
	s.documents, s.do = kept, applyAll(kept)
	return s
}

// mostNames is how many manifests of a text the name of a step has.
const mostNames = 3

// namesOf returns the kinds and names of manifests.
func namesOf(documents []string) string {
	var names []string
	for _, document := range documents[:min(len(documents), mostNames)] {
		o := headOf(document)
		names = append(names, fmt.Sprintf("%s %s", o.Kind, o.Name))
	}
	if len(documents) > mostNames {
		names = append(names, fmt.Sprintf("and %d more", len(documents)-mostNames))
	}
	return strings.Join(names, ", ")
}

// headOf reads what a manifest is about. Of what cannot be read it is the zero value.
func headOf(document string) (o metav1.PartialObjectMetadata) {
	_ = sigsyaml.Unmarshal([]byte(document), &o) // to apply it says what is wrong with it
	return o
}

// reordered returns the manifests of a step in the reverse order of their kinds. Those of one kind keep their order:
// there it may say which comes first.
func (s Step) reordered() []string {
	kind := func(document string) string {
		head := headOf(document)
		return head.APIVersion + " " + head.Kind
	}
	var kinds []string
	for _, document := range s.documents {
		if k := kind(document); !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	all := slices.Clone(s.documents)
	slices.SortStableFunc(all, func(a, b string) int {
		return slices.Index(kinds, kind(b)) - slices.Index(kinds, kind(a))
	})
	return all
}

// Wait returns a step that lets virtual time pass, in which the program goes on: minutes for what is due every minute,
// days for what lives for days. What the program does in it, such as the renewals of a Lease, takes real time in each
// run.
func Wait(d time.Duration) Step {
	return Step{name: "wait " + d.String(), wait: d, do: func(context.Context, *Server) error { return nil }}
}

// Delete returns a step that deletes an object, with background propagation, and does not wait for its finalizers. The
// resource is named as [Get] names it. An object that is not there is no error.
func Delete(resource, namespace, name string) Step {
	return DeleteWith(metav1.DeletePropagationBackground, resource, namespace, name)
}

// DeleteWith is Delete with a policy: what is to become of the objects that the object owns. Foreground deletes them
// first, Orphan lets them stay.
func DeleteWith(policy metav1.DeletionPropagation, resource, namespace, name string) Step {
	return Step{name: fmt.Sprintf("delete %s %s/%s", resource, namespace, name),
		do: func(ctx context.Context, s *Server) error {
			r, err := findResource(s, resource)
			if err != nil {
				return err
			}
			return directDelete(ctx, s, r, namespace, name, policy)
		}}
}

// StepFunc returns a step of your own. cfg is for clients that no disturbance meets.
func StepFunc(name string, do func(ctx context.Context, cfg *rest.Config) error) Step {
	step := Step{name: name}
	if do != nil {
		step.do = func(ctx context.Context, s *Server) error { return do(ctx, s.Config()) }
	}
	return step
}

// userManager is the field manager of the user.
const userManager = "reconciletest-user"

// applyDocument applies a manifest as a user does, with force.
func applyDocument(ctx context.Context, s *Server, document string) error {
	r, o, err := parseManifest(s, document)
	if err != nil {
		return err
	}
	data, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	err = directRequest(ctx, s, http.MethodPatch, pathOf(r, o.GetNamespace(), o.GetName())+
		"?fieldManager="+userManager+"&force=true", "application/apply-patch+yaml", data)
	if err == nil && r.GroupVersionResource == definitions && s.fork == nil {
		err = awaitKind(ctx, s, o.GetName())
	}
	return err
}

// parseManifest reads a manifest, and finds its resource.
func parseManifest(s *Server, document string) (*Resource, *unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	data, err := sigsyaml.YAMLToJSON([]byte(document))
	if err != nil {
		return nil, nil, err
	}
	if err := o.UnmarshalJSON(data); err != nil {
		return nil, nil, err
	}
	for _, r := range s.resources.all() {
		if r.gvk() != o.GroupVersionKind() {
			continue
		}
		if !r.ClusterScoped && o.GetNamespace() == "" {
			o.SetNamespace("default")
		}
		return r, o, nil
	}
	return nil, nil, noKindError{o.GroupVersionKind()}
}

// noKindError is about a manifest of a kind that the server does not have, or not yet.
type noKindError struct{ schema.GroupVersionKind }

func (e noKindError) Error() string {
	return fmt.Sprintf("the server has no kind %s; custom resources belong into Options.CRDs, unless the program "+
		"makes their definition", e.GroupVersionKind)
}

// pathOf returns the path of an object, or of a collection if the name is empty.
func pathOf(r *Resource, namespace, name string) string {
	path := "/api/" + r.Version
	if r.Group != "" {
		path = "/apis/" + r.Group + "/" + r.Version
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	path += "/" + r.Resource
	if name != "" {
		path += "/" + name
	}
	return path
}

// directDelete deletes an object past every link's faults. That the object is not there is no error.
func directDelete(ctx context.Context, s *Server, r *Resource, namespace, name string,
	policy metav1.DeletionPropagation) error {
	path := pathOf(r, namespace, name) + "?propagationPolicy=" + string(policy)
	return directRequest(ctx, s, http.MethodDelete, path, "", nil)
}

// directRequest makes a request past every link's faults. That the object is not there is no error for a deletion.
func directRequest(ctx context.Context, s *Server, method, path, media string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://in-memory"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if media != "" {
		req.Header.Set("Content-Type", media)
	}
	resp, err := transport{s.direct}.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusNotFound && method == http.MethodDelete:
		return nil
	case resp.StatusCode >= http.StatusBadRequest:
		return fmt.Errorf("%s %s: %s", method, path, answer)
	}
	return nil
}
