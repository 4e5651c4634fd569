package reconciletest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// hook is a webhook, and the name of its configuration.
type hook struct {
	admissionregistrationv1.MutatingWebhook
	configuration string
}

// optional reports whether it is ignored that the webhook could not be called.
func (h hook) optional() bool {
	return h.FailurePolicy != nil && *h.FailurePolicy == admissionregistrationv1.Ignore
}

// admission is what is asked about one write: o is nil for a deletion, old for a creation.
type admission struct {
	server *Server
	*call
	o, old  object
	options *metav1.DeleteOptions // of a deletion
}

// newAdmission makes what asks about a write.
func newAdmission(s *Server, c *call, o, old object) *admission {
	return &admission{server: s, call: c, o: o, old: old}
}

func (a *admission) operation() admissionregistrationv1.OperationType {
	switch {
	case a.o == nil:
		return admissionregistrationv1.Delete
	case a.old == nil:
		return admissionregistrationv1.Create
	}
	return admissionregistrationv1.Update
}

// hooks returns the webhooks that the server asks. A fork asks none: its base does.
func (a *admission) hooks(configurations schema.GroupVersionResource) []hook {
	if a.server.fork != nil {
		return nil
	}
	return a.configured(configurations)
}

// configured returns the webhooks of all configurations of a kind, in the order of their names.
func (a *admission) configured(configurations schema.GroupVersionResource) (all []hook) {
	if a.resource.Group == configurations.Group {
		return nil // a configuration must not make its own repair impossible
	}
	if !a.server.store.any(configurations.GroupResource()) {
		return nil
	}
	for _, o := range a.server.store.list(configurations.GroupResource(), a.server.Version()) {
		for _, h := range hooksOf(o) {
			all = append(all, hook{h, o.GetName()})
		}
	}
	return all
}

// target is the version and kind in which a webhook is told of a write.
type target struct {
	schema.GroupVersionResource
	kind schema.GroupVersionKind
}

// mutate asks the webhooks that may change o, one after the other. If one has changed it, those before it that want to
// know are asked once more.
func (a *admission) mutate() error {
	hooks := a.hooks(mutatingConfigurations)
	if len(hooks) == 0 {
		return nil
	}
	if a.Subresource == "scale" {
		return a.unasked(hooks)
	}
	var asked, again []int // hooks that want to know of changes, and those of them that are to be
	changedAny := false
	for round := range 2 {
		for i, h := range hooks {
			if round == 1 && !slices.Contains(again, i) {
				continue
			}
			to, err := a.concerns(h)
			if err != nil {
				return err
			}
			if to == nil {
				continue
			}
			changed, err := a.change(h, *to)
			if err != nil {
				return err
			}
			if changed {
				again, asked, changedAny = append(again, asked...), nil, true
			}
			if p := h.ReinvocationPolicy; p != nil && *p == admissionregistrationv1.IfNeededReinvocationPolicy {
				asked = append(asked, i)
			}
		}
		if !changedAny {
			break
		}
	}
	return nil
}

// validate asks those who may refuse: the rules of the kind, and then the webhooks, all at once.
func (a *admission) validate() error {
	if r := a.resource; !a.asked && !r.custom() && r.builtin.admit != nil && a.o != nil && a.old != nil {
		if err := r.builtin.admit(a.o, a.old); err != nil {
			return err
		}
	}
	hooks := a.hooks(validatingConfigurations)
	if a.Subresource == "scale" {
		return a.unasked(hooks)
	}
	// All reviews are made before the first is sent, so that their UIDs are not a matter of Go's scheduler. One
	// conversion to a version is for all that want it.
	var concerned []func() (warnings []string, err error)
	shown := map[target]contents{}
	for _, h := range hooks {
		to, err := a.concerns(h)
		if err != nil {
			return err
		}
		if to == nil {
			continue
		}
		if _, ok := shown[*to]; !ok {
			if shown[*to], err = a.contents(*to); err != nil {
				return apierrors.NewInternalError(err)
			}
		}
		request, err := a.request(*to, shown[*to])
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		concerned = append(concerned, func() ([]string, error) {
			answer, err := a.ask(h, request, false)
			if answer == nil {
				return nil, err
			}
			return answer.Warnings, err
		})
	}
	warnings, errs := make([][]string, len(concerned)), make([]error, len(concerned))
	if len(concerned) == 1 {
		warnings[0], errs[0] = concerned[0]()
	} else if len(concerned) > 1 {
		var group lifecycle.Group
		for i, ask := range concerned {
			group.Go("webhook", func() { warnings[i], errs[i] = ask() })
		}
		<-group.Done()
	}
	a.warnings = append(a.warnings, slices.Concat(warnings...)...)
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// unasked refuses a write of a subresource that webhooks would be told of in a way that is not modelled.
func (a *admission) unasked(hooks []hook) error {
	for _, h := range hooks {
		if to, err := a.concerns(h); to != nil || err != nil {
			return notModelled("webhooks of the subresource %s, such as %s", a.Subresource, h.Name)
		}
	}
	return nil
}

// concerns returns the version in which a webhook wants to be told of the write; nil: it is not to be told.
func (a *admission) concerns(h hook) (*target, error) {
	namespaced, err := a.inNamespace(h)
	if err == nil && !namespaced || !a.selected(h) {
		return nil, nil
	}
	to := target{a.resource.GroupVersionResource, a.resource.gvk()}
	if a.matches(h.Rules, to.GroupVersionResource) {
		return &to, err
	}
	if h.MatchPolicy == nil || *h.MatchPolicy != admissionregistrationv1.Equivalent {
		return nil, nil
	}
	for _, rule := range h.Rules { // the order of rules comes before that of versions
		for _, other := range a.equivalents() {
			if !a.matches([]admissionregistrationv1.RuleWithOperations{rule}, other.GroupVersionResource) {
				continue
			}
			if other.kind.Empty() {
				return nil, notModelled("the webhook %s, which wants %s in the version %s", h.Name, a.resource.Kind,
					other.GroupVersion())
			}
			return &other, err
		}
	}
	return nil, nil
}

// equivalents returns the other versions in which a webhook may want to be told.
func (a *admission) equivalents() (all []target) {
	r := a.resource
	switch r.GroupResource() {
	case schema.GroupResource{Resource: "events"}: // without a kind: a version that is not modelled
		all = append(all, target{GroupVersionResource: schema.GroupVersionResource{Group: "events.k8s.io",
			Version: "v1", Resource: "events"}})
	case schema.GroupResource{Group: "autoscaling", Resource: "horizontalpodautoscalers"}:
		all = append(all, target{GroupVersionResource: schema.GroupVersionResource{Group: "autoscaling", Version: "v1",
			Resource: "horizontalpodautoscalers"}})
	}
	if r.family != nil {
		for _, v := range r.of.Spec.Versions {
			if other := r.family.versions[v.Name]; other != r && (a.Subresource != "status" || other.Status) {
				all = append(all, target{other.GroupVersionResource, other.gvk()})
			}
		}
	}
	return all
}

// matches reports whether one of the rules is about the write, if that is one of a resource.
func (a *admission) matches(rules []admissionregistrationv1.RuleWithOperations,
	gvr schema.GroupVersionResource) bool {
	has := func(all []string, one string) bool { return slices.Contains(all, "*") || slices.Contains(all, one) }
	return slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		cluster := a.resource.ClusterScoped
		switch {
		case !slices.Contains(r.Operations, admissionregistrationv1.OperationAll) &&
			!slices.Contains(r.Operations, a.operation()),
			!has(r.APIGroups, gvr.Group), !has(r.APIVersions, gvr.Version),
			r.Scope != nil && *r.Scope == admissionregistrationv1.ClusterScope && !cluster,
			r.Scope != nil && *r.Scope == admissionregistrationv1.NamespacedScope && cluster:
			return false
		}
		return slices.ContainsFunc(r.Resources, func(pattern string) bool {
			resource, sub, _ := strings.Cut(pattern, "/")
			return (resource == "*" || resource == gvr.Resource) && (sub == "*" || sub == a.Subresource)
		})
	})
}

// inNamespace reports whether a webhook selects the namespace of the write. What lives in none is always selected.
func (a *admission) inNamespace(h hook) (bool, error) {
	if a.resource.ClusterScoped && a.resource.GroupVersionResource != namespaces {
		return true, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(h.NamespaceSelector)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if selector.Empty() {
		return true, nil
	}
	namespace := a.o
	if a.resource.GroupVersionResource != namespaces || a.o == nil {
		name := a.Namespace
		if a.resource.GroupVersionResource == namespaces {
			name = a.Name
		}
		namespace = a.server.lookup(a.server.resources.of(namespaces), types.NamespacedName{Name: name})
		if namespace == nil {
			return false, apierrors.NewNotFound(namespaces.GroupResource(), name)
		}
	}
	return selector.Matches(labels.Set(namespace.GetLabels())), nil
}

// selected reports whether a webhook selects the object as it is to be, or as it was.
func (a *admission) selected(h hook) bool {
	selector, err := metav1.LabelSelectorAsSelector(h.ObjectSelector)
	if err != nil {
		return true // which validation has ruled out
	}
	return selector.Empty() || a.o != nil && selector.Matches(labels.Set(a.o.GetLabels())) ||
		a.old != nil && selector.Matches(labels.Set(a.old.GetLabels()))
}

// change lets a mutating webhook change o, and reports whether it has.
func (a *admission) change(h hook, to target) (bool, error) {
	shown, err := a.contents(to)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	request, err := a.request(to, shown)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	answer, err := a.ask(h, request, true)
	if err != nil || answer == nil {
		return false, err
	}
	a.warnings = append(a.warnings, answer.Warnings...)
	if len(answer.Patch) == 0 {
		return false, nil
	}
	patch, err := jsonpatch.DecodePatch(answer.Patch)
	if err != nil {
		return false, a.failed(h, fmt.Errorf("received undecodable patch in webhook response: %w", err))
	}
	switch {
	case len(patch) == 0:
		return false, nil
	case a.o == nil:
		return false, apierrors.NewInternalError(fmt.Errorf("admission webhook %q attempted to modify the object, "+
			"which is not supported for this operation", h.Name))
	case *answer.PatchType != admissionv1.PatchTypeJSONPatch:
		return false, a.failed(h, fmt.Errorf("unsupported patch type %q", *answer.PatchType))
	}
	before, err := a.in(a.o, to)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	data, err := jsonOf(before)
	if err == nil {
		data, err = patch.Apply(data)
	}
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	return a.put(before, data, to)
}

// put replaces o by what a webhook has made of it, in the version that it was told of. Fields that the schema does not
// know are there until it is stored, as on a real server.
func (a *admission) put(before object, data []byte, to target) (bool, error) {
	resource := a.resource
	if resource.family != nil {
		resource = resource.family.versions[to.Version]
	}
	after := resource.make()
	var err error
	if u, ok := after.(*unstructured.Unstructured); ok {
		err = u.UnmarshalJSON(data)
	} else {
		err = json.Unmarshal(data, after)
	}
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	after.GetObjectKind().SetGroupVersionKind(to.kind)
	changed := !apiequality.Semantic.DeepEqual(before, after)
	resource.applyDefaults(after)
	if after, err = a.in(after, target{a.resource.GroupVersionResource, a.resource.gvk()}); err != nil {
		return false, apierrors.NewInternalError(err)
	}
	assign(a.o, after)
	a.call.mutated = true
	return changed, nil
}

// in returns an object in the version of a target.
func (a *admission) in(o object, to target) (object, error) {
	if o == nil || a.resource.family == nil {
		return o, nil
	}
	return a.resource.family.convert(a.call, o, to.Version)
}

// ask calls a webhook. The answer is nil if it could not be called and that is to be ignored.
func (a *admission) ask(h hook, request *admissionv1.AdmissionRequest, mutating bool) (
	*admissionv1.AdmissionResponse, error) {
	if a.DryRun && *h.SideEffects != admissionregistrationv1.SideEffectClassNone &&
		*h.SideEffects != admissionregistrationv1.SideEffectClassNoneOnDryRun {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("admission webhook %q does not support dry run", h.Name))
	}
	kind := metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}
	var answer admissionv1.AdmissionReview
	timeout := time.Duration(*h.TimeoutSeconds) * time.Second
	err := webhook{h.Name, h.ClientConfig, h.optional()}.post(a.server, a.call, timeout,
		admissionv1.AdmissionReview{TypeMeta: kind, Request: request}, &answer)
	if isNotModelled(err) {
		return nil, err
	}
	if err != nil {
		err = fmt.Errorf("failed to call webhook: %w", err)
	} else if err = verify(answer, request.UID, mutating); err != nil {
		err = fmt.Errorf("received invalid webhook response: %w", err)
	}
	if err != nil {
		return nil, a.failed(h, err)
	}
	if !answer.Response.Allowed {
		return answer.Response, denied(h.Name, answer.Response.Result)
	}
	return answer.Response, nil
}

// failed is what becomes of a write when a webhook could not be called.
func (a *admission) failed(h hook, err error) error {
	if h.optional() {
		if a.ctx.Err() != nil || a.deadline.over() {
			return errLate
		}
		return nil
	}
	return apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: %w", h.Name, err))
}

// contents are what is to be, and what was, in one version.
type contents struct{ is, was runtime.RawExtension }

func (a *admission) contents(to target) (all contents, err error) {
	for i, into := range []*runtime.RawExtension{&all.is, &all.was} {
		o, err := a.in([]object{a.o, a.old}[i], to)
		if err != nil {
			return all, err
		}
		if o == nil {
			continue
		}
		if into.Raw, err = jsonOf(o); err != nil {
			return all, err
		}
	}
	return all, nil
}

// request is what a webhook is told.
func (a *admission) request(to target, shown contents) (*admissionv1.AdmissionRequest, error) {
	r := a.resource
	request := &admissionv1.AdmissionRequest{
		UID: reviewUID(a.server), Kind: metav1.GroupVersionKind(to.kind),
		Resource:    metav1.GroupVersionResource(to.GroupVersionResource),
		SubResource: a.Subresource, RequestSubResource: a.Subresource,
		RequestKind: new(metav1.GroupVersionKind(r.gvk())), RequestResource: new(metav1.GroupVersionResource(
			r.GroupVersionResource)),
		Name: a.Name, Namespace: a.Namespace, Operation: admissionv1.Operation(a.operation()), DryRun: &a.DryRun,
		UserInfo: userOf(a.call), Object: shown.is, OldObject: shown.was,
	}
	switch a.Verb {
	case "create":
		request.Name = cmp.Or(request.Name, a.o.GetName())
	case "deletecollection":
		request.Name = "" // the request has none
	}
	if a.resource.GroupVersionResource == namespaces {
		request.Namespace = request.Name
	}
	var err error
	request.Options.Raw, err = json.Marshal(a.operationOptions())
	return request, err
}

// userOf returns who makes a call.
func userOf(c *call) authenticationv1.UserInfo {
	name := ""
	switch {
	case c.link == nil:
		name = ServiceAccount("kube-system", c.controller)
	case c.link.user == "":
		return authenticationv1.UserInfo{Username: "system:admin", Groups: []string{"system:masters",
			"system:authenticated"}}
	default:
		name = c.link.user
	}
	return authenticationv1.UserInfo{Username: name, Groups: groupsOf(name)}
}

// operationOptions returns the options of the request, as those of the operation: a patch that changes an object has
// those of an update.
func (a *admission) operationOptions() any {
	kind := func(name string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(), Kind: name}
	}
	dryRun, manager, validation := a.query["dryRun"], a.query.Get("fieldManager"), a.query.Get("fieldValidation")
	switch a.operation() {
	case admissionregistrationv1.Create:
		return metav1.CreateOptions{TypeMeta: kind("CreateOptions"), DryRun: dryRun, FieldManager: manager,
			FieldValidation: validation}
	case admissionregistrationv1.Update:
		return metav1.UpdateOptions{TypeMeta: kind("UpdateOptions"), DryRun: dryRun, FieldManager: manager,
			FieldValidation: validation}
	}
	options := a.options.DeepCopy()
	options.TypeMeta = kind("DeleteOptions")
	return options
}

// verify returns an error for an answer that is none to the review with this UID.
func verify(review admissionv1.AdmissionReview, uid types.UID, mutating bool) error {
	want, r := admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"), review.Response
	switch {
	case r == nil:
		return errors.New("webhook response was absent")
	case r.UID != uid:
		return fmt.Errorf("expected response.uid=%q, got %q", uid, r.UID)
	case review.GroupVersionKind() != want:
		return fmt.Errorf("expected webhook response of %v, got %v", want, review.GroupVersionKind())
	case !mutating && len(r.Patch) > 0:
		return errors.New("validating webhook may not return response.patch")
	case !mutating && r.PatchType != nil:
		return errors.New("validating webhook may not return response.patchType")
	case len(r.Patch) > 0 && r.PatchType == nil:
		return errors.New("webhook returned response.patch but not response.patchType")
	case len(r.Patch) == 0 && r.PatchType != nil:
		return errors.New("webhook returned response.patchType but not response.patch")
	case r.PatchType != nil && *r.PatchType == "":
		return fmt.Errorf("webhook returned invalid response.patchType of %q", *r.PatchType)
	}
	return nil
}

// denied is the answer to a write that a webhook has refused.
func denied(name string, result *metav1.Status) error {
	status := metav1.Status{Status: metav1.StatusFailure}
	if result != nil {
		status = *result
	}
	status.Code = max(status.Code, http.StatusBadRequest)
	if status.Status == "" || status.Status == metav1.StatusSuccess {
		status.Status = metav1.StatusFailure
	}
	why := " without explanation"
	if text := cmp.Or(status.Message, string(status.Reason)); text != "" {
		why = ": " + text
	}
	status.Message = fmt.Sprintf("admission webhook %q denied the request%s", name, why)
	return &apierrors.StatusError{ErrStatus: status}
}
