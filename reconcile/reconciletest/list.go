package reconciletest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// patience is how long the server waits for a version that has not come yet.
const patience = 3 * time.Second

func (s *Server) getObject(c *call) (runtime.Object, error) {
	version, err := parseVersion(c.query.Get("resourceVersion"))
	if err != nil {
		return nil, err
	}
	if err := c.waitFor(version); err != nil {
		return nil, err
	}
	stored := s.lookup(c.resource, c.key())
	if c.query.Get("resourceVersion") == "0" {
		version, _ := c.reached(true)
		stored = s.store.getAt(c.resource.GroupResource(), c.key(), version)
	}
	if stored == nil {
		return nil, c.notFound()
	}
	o, err := c.show(c.resource, stored)
	if err != nil {
		err = internal(corrupt("", c.resource, stored, err))
	}
	return o, err
}

// parseVersion reads a resourceVersion; empty is 0.
func parseVersion(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	v, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("the resourceVersion %q is no number", s) // 500, as the real server says
	}
	return int64(v), nil
}

// reached returns the version of the last write, or the one that the cache of the server has reached that the client
// talks to, and the version before which everything is compacted.
func (c *call) reached(cached bool) (version, compacted int64) {
	s := c.link.server.store
	s.mu.Lock()
	defer s.mu.Unlock()
	compacted = s.compactedLocked(c.resource.GroupResource())
	if cached {
		return c.link.cachedLocked(), compacted
	}
	return s.version, compacted
}

// waitFor waits until the cache has reached a version, for as long as a server does.
func (c *call) waitFor(version int64) error {
	s := c.link.server.store
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		now, changed := c.link.cachedLocked(), s.changed
		s.mu.Unlock()
		if now >= version {
			return nil
		}
		select {
		case <-changed:
		case <-timeout.C:
			return tooLarge(version, now)
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
}

// filter is what a list or a watch is asked to leave out.
type filter struct {
	resource  *Resource
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func (f filter) matches(o object) bool {
	return o != nil && (f.namespace == "" || o.GetNamespace() == f.namespace) &&
		f.labels.Matches(labels.Set(o.GetLabels())) && f.fields.Matches(f.resource.selectable(o))
}

// everything reports whether the filter has no selectors.
func (f filter) everything() bool { return f.labels.Empty() && f.fields.Empty() }

// listOptions reads the parameters of a list or a watch.
func (c *call) listOptions() (*internalversion.ListOptions, filter, error) {
	opts := &internalversion.ListOptions{}
	f := filter{resource: c.resource, namespace: c.Namespace, labels: labels.Everything(), fields: fields.Everything()}
	if err := internalscheme.ParameterCodec.DecodeParameters(c.query, metav1.SchemeGroupVersion, opts); err != nil {
		return nil, f, apierrors.NewBadRequest(err.Error())
	}
	if errs := validation.ValidateListOptions(opts, true); len(errs) > 0 {
		return nil, f, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if opts.LabelSelector != nil {
		f.labels = opts.LabelSelector
	}
	if opts.FieldSelector != nil {
		f.fields = opts.FieldSelector
	}
	selectable := c.resource.selectable(c.resource.make())
	for _, term := range f.fields.Requirements() {
		if !selectable.Has(term.Field) {
			return nil, f, apierrors.NewBadRequest(
				fmt.Sprintf("Unable to find %q that match label selector %q, field selector %q: field label not "+
					"supported: %s",
					c.Resource, f.labels, f.fields, term.Field))
		}
	}
	return opts, f, nil
}

// listObjects answers a list, by the table of "Semantics for get and list" in Kubernetes API Concepts:
//
//	resourceVersion  unset         0       N > 0
//	no match         most recent   any     not older than N; with a limit, exactly N
//	NotOlderThan     refused       any     not older than N
//	Exact            refused       refused exactly N
//
// "Any" and "not older" are here the most recent state, which a server may answer with. A continued list goes on at the
// version of its first page.
func (s *Server) listObjects(c *call) (*http.Response, error) {
	opts, f, err := c.listOptions()
	if err != nil {
		return nil, err
	}
	asked, err := parseVersion(opts.ResourceVersion)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	var from continueToken
	exact := opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact || opts.ResourceVersionMatch == "" &&
		opts.Limit > 0 && asked > 0
	if opts.Continue != "" {
		if asked != 0 {
			return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		if from, err = parseToken(opts.Continue); err != nil {
			return nil, apierrors.NewBadRequest("continue key is not valid: " + err.Error())
		}
		asked, exact = from.Version, from.Version > 0
	}
	if !exact {
		if err := c.waitFor(asked); err != nil {
			return nil, err
		}
	}
	version, compacted := c.reached(!exact && opts.ResourceVersion != "")
	if exact {
		switch {
		case asked > version:
			return nil, tooLarge(asked, version)
		case asked < compacted:
			return nil, from.expired()
		}
		version = asked
	}

	objects, err := c.matching(s, f, version)
	if err != nil {
		return nil, err
	}
	if from.Start != "" {
		objects = slices.DeleteFunc(objects, func(o object) bool { return keyString(o) < from.Start })
	}
	// A list from the cache, which is what 0 asks for, is not cut into pages.
	limit, rest := opts.Limit, 0
	if opts.ResourceVersion == "0" && opts.Continue == "" {
		limit = 0
	}
	if limit > 0 && int64(len(objects)) > limit {
		rest = len(objects) - int(limit)
		objects = objects[:limit]
	}
	list, err := s.makeList(c.resource, objects)
	if err != nil {
		return nil, err
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	m.SetResourceVersion(strconv.FormatInt(version, 10))
	if c.resource.custom() {
		m.SetContinue("") // there, and empty
	}
	if rest > 0 {
		m.SetContinue(continueToken{Version: version, Start: keyString(objects[len(objects)-1]) + "\x00"}.String())
		if f.everything() {
			n := int64(rest)
			m.SetRemainingItemCount(&n)
		}
	}
	return answerObject(http.StatusOK, c.format, list), nil
}

// matching returns the objects of a version that match a filter.
func (c *call) matching(s *Server, f filter, version int64) ([]object, error) {
	held, err := c.showCached(c.resource, s.store.list(c.resource.GroupResource(), version))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(held, func(o object) bool { return !f.matches(o) }), nil
}

// keyString is what objects are ordered by.
func keyString(o object) string { return o.GetNamespace() + "/" + o.GetName() }

// continueToken says where a list goes on, and at which version; -1: at the most recent.
type continueToken struct {
	Version int64  `json:"rv"`
	Start   string `json:"start"`
}

func (t continueToken) String() string {
	data, err := json.Marshal(t)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(data)
}

func parseToken(s string) (t continueToken, err error) {
	data, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err == nil && (t.Version == 0 || t.Start == "") {
		err = fmt.Errorf("it names no version or no start")
	}
	return t, err
}

// expired is the answer when the version of a list is compacted. For a page it brings a token with which the list goes
// on at the most recent version, for clients that prefer an inconsistent list to none.
func (t continueToken) expired() error {
	if t.Start == "" {
		return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	}
	err := apierrors.NewResourceExpired(
		"The provided continue parameter is too old to display a consistent list result.")
	err.ErrStatus.ListMeta.Continue = continueToken{Version: -1, Start: t.Start}.String()
	return err
}

// Objects returns the objects of a resource, such as "pods", in the order of namespace and name, for tests that look at
// what has become of everything. They are copies.
func Objects[T runtime.Object](s *Server, resource string) []T {
	var all []T
	for _, r := range kindsOf(s) {
		if r.GroupVersionResource.Resource != resource {
			continue
		}
		for _, o := range s.store.list(r.GroupResource(), s.Version()) {
			if t, ok := copyOf(o).(runtime.Object).(T); ok {
				all = append(all, t)
			}
		}
	}
	return slices.Clip(all)
}
