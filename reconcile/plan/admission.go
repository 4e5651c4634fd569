package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// dryRunTimeout is how long a cluster may take for a dry run: it gives its webhooks as long.
const dryRunTimeout = 30 * time.Second

// dryRun sends a write to the cluster as a dry run. It is the only way by which anything but a GET goes there. An
// answer other than 2xx is an error.
func (b *base) dryRun(ctx context.Context, method, at string, body any) ([]byte, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dryRunTimeout)
	defer cancel()
	if err := b.pace.Wait(ctx); err != nil {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("a dry run was not sent: %v", err))
	}
	query := url.Values{"dryRun": {metav1.DryRunAll}}
	if method != http.MethodDelete {
		query.Set("fieldValidation", metav1.FieldValidationIgnore) // the fork has read it as the program wants it read
	}
	resp, err := b.do(ctx, method, at, query, "application/json", data)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// acceptMetadata asks for the metadata of an object, or for all of it where a server gives no less.
const acceptMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

// Admit asks the cluster by a dry run what it would make of a write, if the plan is one with admission. What a program
// writes about itself, and what a healthy world writes, is not sent.
func (b *base) Admit(ctx context.Context, w reconciletest.BaseWrite, opts *metav1.DeleteOptions) (
	reconciletest.BaseAnswer, error) {
	if w.By != worldManager {
		b.asked(w)
	}
	if !b.admits || aside(w.Resource.GroupResource()) || w.By == worldManager {
		return reconciletest.BaseAnswer{}, nil
	}
	var answer reconciletest.BaseAnswer
	aggregated, err := b.aggregated(ctx, w.Resource.GroupVersion())
	switch {
	case err != nil:
		err = unasked(fmt.Sprintf("whether another server has the API is not known: %v", err))
	case aggregated:
		err = unasked("another server has the API, and may not know dry runs")
	case w.New == nil:
		answer, err = b.admitDeletion(ctx, w, opts)
	case w.Old == nil:
		answer, err = b.admitCreation(ctx, w)
	default:
		answer, err = b.admitUpdate(ctx, w)
	}
	if err == nil && isService(w) && answer.Object != nil && !answer.AsNew {
		answer.Object, err = withoutGuesses(w, answer.Object)
	}
	if err == nil {
		return answer, nil
	}
	why, err := b.without(w, err)
	if err == nil {
		b.Approximate(w.Request, why+": the fork goes on without the cluster's admission")
	}
	return reconciletest.BaseAnswer{}, err
}

// aggregated reports whether a server of its own has an API, to which the cluster passes requests on: what a dry run is
// there is that server's affair.
func (b *base) aggregated(ctx context.Context, gv schema.GroupVersion) (bool, error) {
	b.mu.Lock()
	elsewhere := b.elsewhere
	b.mu.Unlock()
	if elsewhere != nil {
		return elsewhere[gv], nil
	}
	var list struct {
		Items []struct {
			Spec struct {
				Group, Version string
				Service        *struct{ Name string }
			}
		}
	}
	var groups metav1.APIGroupList
	if err := b.read(ctx, "/apis", nil, "application/json", &groups); err != nil {
		return false, err
	}
	if slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == "apiregistration.k8s.io" }) {
		err := b.read(ctx, "/apis/apiregistration.k8s.io/v1/apiservices", nil, "application/json", &list)
		if err != nil {
			return false, err
		}
	}
	elsewhere = map[schema.GroupVersion]bool{}
	for _, one := range list.Items {
		if one.Spec.Service != nil {
			elsewhere[schema.GroupVersion{Group: one.Spec.Group, Version: one.Spec.Version}] = true
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.elsewhere = elsewhere
	return elsewhere[gv], nil
}

// unasked is why the cluster is not asked about a write.
type unasked string

func (why unasked) Error() string { return string(why) }

// admitUpdate sends the whole object as an update of the one that the cluster has now.
func (b *base) admitUpdate(ctx context.Context, w reconciletest.BaseWrite) (reconciletest.BaseAnswer, error) {
	at := pathOf(w.Resource, w.Namespace) + "/" + w.Name
	sub := w.Subresource
	if sub == "scale" { // the object comes as a whole
		sub = ""
	}
	for attempt := 1; ; attempt++ {
		var live metav1.PartialObjectMetadata
		err := b.read(ctx, at, nil, acceptMetadata, &live)
		if apierrors.IsNotFound(err) || err == nil && live.UID != w.Old.GetUID() {
			return b.admitAsNew(ctx, w)
		}
		if err != nil {
			return reconciletest.BaseAnswer{}, err
		}
		sent, err := asSent(w.New)
		if err != nil {
			return reconciletest.BaseAnswer{}, err
		}
		sent.SetUID(live.UID)
		sent.SetResourceVersion(live.ResourceVersion)
		where := at
		if sub != "" {
			where += "/" + sub
		}
		answer, err := b.dryRun(ctx, http.MethodPut, where, sent)
		if err == nil {
			return reconciletest.BaseAnswer{Asked: true, Object: answer}, nil
		}
		if raced := apierrors.IsConflict(err) || apierrors.IsNotFound(err); !raced || attempt == attempts {
			return reconciletest.BaseAnswer{}, err
		}
	}
}

// admitAsNew sends an object that the cluster does not have as a new one.
func (b *base) admitAsNew(ctx context.Context, w reconciletest.BaseWrite) (reconciletest.BaseAnswer, error) {
	switch {
	case w.Subresource != "" && w.Subresource != "scale":
		return reconciletest.BaseAnswer{}, unasked("the object is on the fork only, and no creation writes its " +
			w.Subresource)
	case w.Resource.Group == "batch" && w.Resource.Resource == "jobs":
		// A new one gets a selector of its own.
		return reconciletest.BaseAnswer{}, unasked("the Job is on the fork only")
	}
	b.Approximate(w.Request, "the object is on the fork only: the cluster was asked about its creation as it would be "+
		"after the update, and not whether what changes may change")
	answer, err := b.admitCreation(ctx, w)
	answer.AsNew = true
	return answer, err
}

// drawn are the fields of a Service that the server draws: those of the fork may be taken in the cluster.
var drawn = []string{"clusterIP", "clusterIPs", "healthCheckNodePort"}

// admitCreation sends an object as a new one.
func (b *base) admitCreation(ctx context.Context, w reconciletest.BaseWrite) (
	reconciletest.BaseAnswer, error) {
	none := reconciletest.BaseAnswer{}
	sent, err := asSent(w.New)
	if err != nil {
		return none, err
	}
	if w.Old != nil {
		withoutDrawn(w, sent)
	}
	at := pathOf(w.Resource, w.Namespace)
	data, err := b.dryRun(ctx, http.MethodPost, at, sent)
	if apierrors.IsAlreadyExists(err) { // the program has deleted that one
		b.Approximate(w.Request, "the cluster still has the object that was deleted on the fork, and was asked about "+
			"one of another name")
		sent.SetName("")
		sent.SetGenerateName(w.Name + "-")
		data, err = b.dryRun(ctx, http.MethodPost, at, sent)
	}
	if err != nil {
		return none, err
	}
	if w.Old == nil {
		if err := b.mindQuotas(ctx, w); err != nil {
			return none, err
		}
	}
	var is metav1.PartialObjectMetadata
	if err := json.Unmarshal(data, &is); err != nil {
		return none, err
	}
	if uid := w.New.GetUID(); is.UID != "" && uid != "" { // such as in the selector of a Job
		data = bytes.ReplaceAll(data, []byte(is.UID), []byte(uid))
	}
	if w.Old != nil {
		if data, err = withDrawn(w, data); err != nil {
			return none, err
		}
	}
	return reconciletest.BaseAnswer{Asked: true, Object: data}, nil
}

func isService(w reconciletest.BaseWrite) bool {
	return w.Resource.Group == "" && w.Resource.Resource == "services"
}

// withoutDrawn takes what the fork has drawn out of a Service.
func withoutDrawn(w reconciletest.BaseWrite, sent *unstructured.Unstructured) {
	ip, _, _ := unstructured.NestedString(sent.Object, "spec", "clusterIP")
	if !isService(w) || ip == "None" {
		return
	}
	for _, name := range drawn {
		unstructured.RemoveNestedField(sent.Object, "spec", name)
	}
	ports, _, _ := unstructured.NestedSlice(sent.Object, "spec", "ports")
	for _, p := range ports {
		if p, ok := p.(map[string]any); ok {
			delete(p, "nodePort")
		}
	}
	if len(ports) > 0 {
		_ = unstructured.SetNestedSlice(sent.Object, ports, "spec", "ports") // spec is a map: it was read from it
	}
}

// withoutGuesses takes out of the answer what a dry run says in place of what the server would draw, which is the same
// for all Services: the fork draws it, or keeps what it has. It draws no IPv6.
func withoutGuesses(w reconciletest.BaseWrite, data []byte) ([]byte, error) {
	sent, err := asSent(w.New)
	if err != nil {
		return nil, err
	}
	answer := map[string]any{}
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, err
	}
	spec, ok := answer["spec"].(map[string]any)
	families, _, _ := unstructured.NestedStringSlice(answer, "spec", "ipFamilies")
	if !ok || !slices.Equal(families, []string{"IPv4"}) {
		return data, nil
	}
	for _, name := range drawn {
		if _, chosen, _ := unstructured.NestedFieldNoCopy(sent.Object, "spec", name); !chosen {
			delete(spec, name)
		}
	}
	named, _, _ := unstructured.NestedSlice(sent.Object, "spec", "ports")
	ports, _ := spec["ports"].([]any)
	for i, p := range ports {
		p, ok := p.(map[string]any)
		if !ok || i >= len(named) {
			continue
		}
		if was, ok := named[i].(map[string]any); ok && was["nodePort"] == nil {
			delete(p, "nodePort")
		}
	}
	return json.Marshal(answer)
}

// withDrawn puts what the fork has drawn back into the answer.
func withDrawn(w reconciletest.BaseWrite, data []byte) ([]byte, error) {
	if !isService(w) {
		return data, nil
	}
	answer := map[string]any{}
	if err := json.Unmarshal(data, &answer); err != nil {
		return nil, err
	}
	was, err := asSent(w.New)
	if err != nil {
		return nil, err
	}
	spec, ok := answer["spec"].(map[string]any)
	if !ok {
		return data, nil
	}
	for _, name := range append(slices.Clone(drawn), "ports") {
		if value, found, _ := unstructured.NestedFieldNoCopy(was.Object, "spec", name); found {
			spec[name] = value
		}
	}
	return json.Marshal(answer)
}

// admitDeletion sends a deletion. An object that the cluster does not have is asked about no more.
func (b *base) admitDeletion(ctx context.Context, w reconciletest.BaseWrite, opts *metav1.DeleteOptions) (
	reconciletest.BaseAnswer, error) {
	if opts == nil {
		opts = &metav1.DeleteOptions{}
	}
	uid := w.Old.GetUID()
	body := metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		DryRun: []string{metav1.DryRunAll}, Preconditions: &metav1.Preconditions{UID: &uid},
		PropagationPolicy: opts.PropagationPolicy, GracePeriodSeconds: opts.GracePeriodSeconds}
	_, err := b.dryRun(ctx, http.MethodDelete, pathOf(w.Resource, w.Namespace)+"/"+w.Name, body)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // it, or the one of its name, is on the fork only
		return reconciletest.BaseAnswer{}, unasked("the object is on the fork only")
	}
	return reconciletest.BaseAnswer{Asked: err == nil}, err
}

// asSent returns an object without what the fork has made of its metadata.
func asSent(o reconciletest.Object) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	sent := &unstructured.Unstructured{}
	if err := sent.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	for _, name := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields",
		"deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"} {
		unstructured.RemoveNestedField(sent.Object, "metadata", name)
	}
	return sent, nil
}

var (
	// refusesDryRuns is what the server says of a webhook with side effects.
	refusesDryRuns = regexp.MustCompile(`admission webhook "([^"]+)" does not support dry run`)
	// lacksRight is what it says of an account without a right. A webhook, a quota or a policy says something else.
	lacksRight = regexp.MustCompile(`^\S+( "[^"]*")? is forbidden: User ".*" cannot (\S+) resource "([^"]+)"`)
	// grants is what it says to an account that may not escalate.
	grants = regexp.MustCompile(`is attempting to grant RBAC permissions not currently held`)
	// refersTo is what it says of an object that another one needs.
	refersTo = regexp.MustCompile(`"([^"]+)" not found`)
)

// without says why the fork goes on without the answer of the cluster, or returns what the program is to be told.
func (b *base) without(w reconciletest.BaseWrite, err error) (why string, answer error) {
	var reason unasked
	if errors.As(err, &reason) {
		return string(reason), nil
	}
	message := err.Error()
	if m := refusesDryRuns.FindStringSubmatch(message); m != nil && apierrors.IsBadRequest(err) {
		return fmt.Sprintf("the webhook %s refuses dry runs", m[1]), nil
	}
	if m := lacksRight.FindStringSubmatch(message); m != nil && apierrors.IsForbidden(err) {
		b.forbidden(m[2], w.Resource.GroupVersion().WithResource(m[3]), w.Namespace)
		return fmt.Sprintf("the plan may not %s %s, by a dry run neither", m[2], m[3]), nil
	}
	if grants.MatchString(message) && apierrors.IsForbidden(err) {
		return "the plan may not grant what it does not have itself", nil
	}
	if m := refersTo.FindStringSubmatch(message); m != nil && b.onlyHere(m[1]) {
		return fmt.Sprintf("the cluster does not have %q, which the program has made on the fork", m[1]), nil
	}
	return "", err
}

// quotas are what limits the objects of a namespace.
var quotas = schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}

// mindQuotas says that the cluster compares each new object with a quota as if there were none of the others.
func (b *base) mindQuotas(ctx context.Context, w reconciletest.BaseWrite) error {
	if w.Namespace == "" {
		return nil
	}
	b.mu.Lock()
	limited, known := b.limited[w.Namespace]
	b.mu.Unlock()
	if !known {
		err := b.contents(ctx, quotas, w.Namespace, func(metav1.PartialObjectMetadata) { limited = true })
		if err != nil && !apierrors.IsForbidden(err) {
			return err
		}
		b.mu.Lock()
		b.limited[w.Namespace] = limited
		b.mu.Unlock()
	}
	if limited {
		b.Approximate(w.Request, "a quota is compared with each new object alone, not with all that the program makes")
	}
	return nil
}

// onlyHere reports whether the program has made an object of a name.
func (r *recorder) onlyHere(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.made[name]
}
