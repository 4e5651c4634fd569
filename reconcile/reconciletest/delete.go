package reconciletest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// deleteOptions reads the options of a deletion from the body, or, if it is empty, from the query.
func (s *Server) deleteOptions(c *call) (*metav1.DeleteOptions, error) {
	opts := &metav1.DeleteOptions{}
	switch {
	case len(c.body) == 0:
		if err := metav1.Convert_url_Values_To_v1_DeleteOptions(&c.query, opts, nil); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	case c.media == runtime.ContentTypeJSON:
		if err := json.Unmarshal(c.body, opts); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	case c.media == runtime.ContentTypeProtobuf:
		raw, ok := bytes.CutPrefix(c.body, []byte{'k', '8', 's', 0})
		var unknown runtime.Unknown
		err := errors.New("the body does not start as protobuf does")
		if ok {
			if err = unknown.Unmarshal(raw); err == nil {
				err = opts.Unmarshal(unknown.Raw)
			}
		}
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	default:
		return nil, unsupportedMediaType(runtime.ContentTypeJSON, runtime.ContentTypeProtobuf)
	}
	if errs := validation.ValidateDeleteOptions(opts); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	c.DryRun = c.DryRun || len(opts.DryRun) > 0
	//lint:ignore SA1019 the older way to state the policy is still obeyed
	if orphan := opts.OrphanDependents; orphan != nil {
		policy := metav1.DeletePropagationBackground
		if *orphan {
			policy = metav1.DeletePropagationOrphan
		}
		opts.PropagationPolicy, c.accept = &policy, !*orphan
	}
	if g := opts.GracePeriodSeconds; g != nil && *g < 0 {
		*g = 1
	}
	if opts.PropagationPolicy == nil && c.resource.Kind == "Job" && !c.resource.custom() {
		c.warnings = append(c.warnings, "child pods are preserved by default when jobs are deleted; set "+
			"propagationPolicy=Background to remove them or "+
			"set propagationPolicy=Orphan to suppress this warning")
	}
	return opts, nil
}

// deleteObject answers a DELETE of one object.
func (s *Server) deleteObject(c *call) (*http.Response, error) {
	opts, err := s.deleteOptions(c)
	if err != nil {
		return nil, err
	}
	o, gone, err := s.delete(c, opts)
	if err != nil {
		return nil, err
	}
	code := http.StatusOK
	if c.accept && !gone {
		code = http.StatusAccepted
	}
	var answer runtime.Object = o
	if gone && (c.resource.custom() || !c.resource.builtin.returnDeleted) {
		answer = &metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
			Details: &metav1.StatusDetails{Name: o.GetName(), Group: c.Resource.Group, Kind: c.Resource.Resource,
				UID: o.GetUID()},
		}
	}
	return answerObject(code, c.format, answer), nil
}

// delete deletes an object, or begins to: an object that has finalizers, and one whose kind takes time to go, is marked
// first. gone reports whether it is no longer there.
func (s *Server) delete(c *call, opts *metav1.DeleteOptions) (o object, gone bool, err error) {
	err = race(c, func() error {
		live, err := c.live(s, c.resource)
		if err != nil {
			return internal(corrupt("", c.resource, s.lookup(c.resource, c.key()), err))
		}
		if live == nil {
			return c.notFound()
		}
		o, gone, err = s.deleteOnce(c, live, *opts.DeepCopy())
		return err
	})
	return o, gone, err
}

func (s *Server) deleteOnce(c *call, live object, opts metav1.DeleteOptions) (o object, gone bool, err error) {
	if err := c.meets(opts.Preconditions, live); err != nil {
		return nil, false, err
	}
	marked := copyOf(live)
	if terminates(c.resource, marked) {
		if live.GetDeletionTimestamp() != nil {
			return live, false, nil
		}
		if err := c.admitDeletion(s, live, &opts); err != nil {
			return nil, false, err
		}
		at := metav1.NewTime(now())
		marked.SetDeletionTimestamp(&at)
		if !c.resource.custom() { // a definition is deleted in one way only
			marked.SetFinalizers(finalizersFor(marked, opts))
		}
		if c.DryRun {
			return marked, false, nil
		}
		return c.marked(s, live, marked)
	}
	graceful, pending := false, false
	if !c.resource.custom() && c.resource.builtin.grace != nil {
		graceful, pending = c.resource.graceful(marked, &opts)
	}
	if pending {
		return live, false, nil
	}
	if err := c.admitDeletion(s, live, &opts); err != nil {
		return nil, false, err
	}
	if !c.resource.custom() {
		c.resource.builtin.defaultPolicy(live, &opts)
	}
	marked.SetFinalizers(finalizersFor(marked, opts))
	finalizers := len(marked.GetFinalizers()) > 0
	if !graceful && !finalizers {
		if c.DryRun {
			return live, true, nil
		}
		o, err := c.remove(s, live)
		return o, true, err
	}
	if !graceful {
		mark(marked)
	}
	gone = !finalizers && (!graceful || *opts.GracePeriodSeconds == 0)
	if c.DryRun {
		return marked, gone, nil
	}
	if marked, _, err = c.marked(s, live, marked); err == nil && gone {
		marked, err = c.remove(s, marked)
	}
	return marked, gone, err
}

// terminates marks an object that somebody has to do something for before it can go, and reports whether that is so.
func terminates(r *Resource, o object) bool {
	terminate := r.terminate
	if !r.custom() {
		terminate = r.builtin.terminate
	}
	return terminate != nil && terminate(o)
}

// meets returns an error if the object is not the one that a deletion is meant for.
func (c *call) meets(p *metav1.Preconditions, live object) error {
	if p == nil {
		return nil
	}
	conflict := func(format string, args ...any) error {
		return apierrors.NewConflict(schema.GroupResource{Group: c.Resource.Group, Resource: c.resource.Kind},
			c.Name, fmt.Errorf(format, args...))
	}
	if p.UID != nil && *p.UID != live.GetUID() {
		return conflict("the UID in the precondition (%s) does not match the UID in record (%s). "+
			"The object might have been deleted and then recreated", *p.UID, live.GetUID())
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != live.GetResourceVersion() {
		return conflict("the ResourceVersion in the precondition (%s) does not match the "+
			"ResourceVersion in record (%s). The object might have been modified",
			*p.ResourceVersion, live.GetResourceVersion())
	}
	return nil
}

// admitDeletion asks who may refuse a deletion.
func (c *call) admitDeletion(s *Server, live object, opts *metav1.DeleteOptions) error {
	if c.resource.guard != nil {
		if err := c.resource.guard(nil, live.(*unstructured.Unstructured)); err != nil {
			return err
		}
	}
	if c.unasked {
		return nil
	}
	a := newAdmission(s, c, nil, live)
	a.options = opts
	if err := s.fork.admit(a); err != nil {
		return err
	}
	if err := a.mutate(); err != nil {
		return err
	}
	return a.validate()
}

// marked stores an object that has been marked, unless it was before.
func (c *call) marked(s *Server, live, marked object) (o object, gone bool, err error) {
	if same(marked, live) {
		return live, false, nil
	}
	o, err = c.write(s, c.key(), live, marked, false)
	return o, false, err
}

// remove takes an object out of the store and returns its last state.
func (c *call) remove(s *Server, live object) (object, error) {
	return c.write(s, keyOf(live), live, nil, false)
}

// mark marks an object as being deleted, which others finish.
func mark(o object) {
	now := metav1.NewTime(now())
	if o.GetDeletionTimestamp() == nil && o.GetGeneration() > 0 {
		o.SetGeneration(o.GetGeneration() + 1)
	}
	if t := o.GetDeletionTimestamp(); t == nil || t.After(now.Time) {
		o.SetDeletionTimestamp(&now)
	}
	o.SetDeletionGracePeriodSeconds(new(int64))
}

// graceful marks an object of a kind that takes time to go. pending says that it has been marked before and this
// deletion does not shorten the time; graceful false, that it takes no more time.
func (r *Resource) graceful(o object, opts *metav1.DeleteOptions) (graceful, pending bool) {
	now := metav1.NewTime(now())
	if marked := o.GetDeletionTimestamp(); marked != nil {
		was := o.GetDeletionGracePeriodSeconds()
		switch {
		case was == nil || *was == 0:
			return false, false
		case opts.GracePeriodSeconds == nil || *opts.GracePeriodSeconds >= *was:
			return false, true
		}
		period := *opts.GracePeriodSeconds
		earlier := metav1.NewTime(marked.Add(time.Duration(period-*was) * time.Second))
		if earlier.Before(&now) {
			earlier = now
			period = min(period, 1)
		}
		o.SetDeletionTimestamp(&earlier)
		o.SetDeletionGracePeriodSeconds(&period)
		return true, false
	}
	r.builtin.grace(o, opts)
	at := metav1.NewTime(now.Add(time.Duration(*opts.GracePeriodSeconds) * time.Second))
	o.SetDeletionTimestamp(&at)
	o.SetDeletionGracePeriodSeconds(opts.GracePeriodSeconds)
	if o.GetGeneration() > 0 {
		o.SetGeneration(o.GetGeneration() + 1)
	}
	return true, false
}

// isPolicy reports whether a finalizer says what is to become of the dependents.
func isPolicy(f string) bool {
	return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
}

// defaultPolicy puts the policy of a kind into options that name none, and one that means nothing in the place of any.
func (r *rules) defaultPolicy(live object, opts *metav1.DeleteOptions) {
	policy := metav1.DeletePropagationBackground
	switch {
	case r.ownsNothing:
	case r.orphans && opts.PropagationPolicy == nil && !slices.ContainsFunc(live.GetFinalizers(), isPolicy):
		policy = metav1.DeletePropagationOrphan
	default:
		return
	}
	opts.PropagationPolicy = &policy
}

// finalizersFor returns the finalizers of an object once it has been told what is to become of its dependents.
func finalizersFor(o object, opts metav1.DeleteOptions) []string {
	all := o.GetFinalizers()
	want := ""
	switch policy := opts.PropagationPolicy; {
	case policy == nil:
		return all // those of an earlier deletion stay
	case *policy == metav1.DeletePropagationOrphan:
		want = metav1.FinalizerOrphanDependents
	case *policy == metav1.DeletePropagationForeground:
		want = metav1.FinalizerDeleteDependents
	}
	if want != "" && slices.Contains(all, want) &&
		!slices.ContainsFunc(all, func(f string) bool { return isPolicy(f) && f != want }) {
		return all
	}
	all = slices.DeleteFunc(slices.Clone(all), isPolicy)
	if want != "" {
		all = append(all, want)
	}
	return all
}

// deleteCollection answers a DELETE of a collection: it deletes each object that a list of the same selectors has.
func (s *Server) deleteCollection(c *call) (*http.Response, error) {
	opts, err := s.deleteOptions(c)
	if err != nil {
		return nil, err
	}
	if c.resource.GroupVersionResource == definitions {
		return nil, notModelled("the deletion of a collection of CustomResourceDefinitions")
	}
	listed, f, err := c.listOptions()
	if err != nil {
		return nil, err
	}
	if listed.Limit > 0 || listed.Continue != "" || listed.ResourceVersion != "" {
		return nil, notModelled("a deletion of a part of a collection")
	}
	version := s.Version()
	var deleted []object
	held, err := c.matching(s, f, version)
	if err != nil {
		return nil, err
	}
	for _, o := range held {
		one := *c
		one.Namespace, one.Name = o.GetNamespace(), o.GetName()
		_, _, err := s.delete(&one, opts)
		c.warnings = one.warnings
		switch {
		case err == nil, apierrors.IsNotFound(err):
			deleted = append(deleted, o)
		default:
			return nil, err
		}
	}
	list, err := s.makeList(c.resource, deleted)
	if err != nil {
		return nil, err
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	m.SetResourceVersion(strconv.FormatInt(version, 10))
	m.SetContinue("") // which a list of custom resources says
	return answerObject(http.StatusOK, c.format, list), nil
}
