package reconciletest

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// call is a request on its way through the server.
type call struct {
	Request
	ctx        context.Context
	link       *Link
	resource   *Resource
	parent     *Resource // for the subresource scale, where resource is that of the Scale
	query      url.Values
	body       []byte
	media      string // of the body
	format     format // of the answer
	userAgent  string
	accept     bool // a deletion that is not complete is to be answered with 202
	warnings   []string
	mutated    bool // a webhook has changed the object
	deadline   deadline
	asked      bool   // the base of a fork takes the write
	askedAsNew bool   // it was asked about a creation
	controller string // who makes it if there is no link
	unasked    bool   // no webhook is asked
}

// serve answers a request. An error of the server is an answer, too; what is returned as an error is one of the
// connection.
func (s *Server) serve(l *Link, r Request, req *http.Request) (*http.Response, error) {
	resp, err := s.dispatch(l, r, req)
	if err == nil {
		return resp, nil
	}
	if gone := req.Context().Err(); gone != nil {
		return nil, gone
	}
	return l.refuse(req, err), nil
}

func (s *Server) dispatch(l *Link, r Request, req *http.Request) (*http.Response, error) {
	if handler := s.aggregated.of(r); handler != nil {
		return l.proxy(handler, r, req)
	}
	if r.Path != "" && s.fork != nil {
		return s.fork.base.Document(req)
	}
	if r.Path != "" {
		if resp, ok := s.serveDocument(r.Path); ok {
			return resp, nil
		}
		if strings.HasPrefix(r.Path, "/api/") || strings.HasPrefix(r.Path, "/apis/") {
			return notServed(), nil // a group or version that is not there: clients probe for these
		}
		return nil, notModelled("the path %s", r.Path)
	}
	if r.Verb == "create" && (r.Resource == selfReviews || r.Resource == accessReviews) {
		return s.reviewAccess(l, r, req)
	}
	if s.fork != nil {
		if err := s.fork.prepare(req.Context(), r); err != nil {
			return nil, err
		}
	}
	c := &call{Request: r, ctx: req.Context(), link: l, query: req.URL.Query(), userAgent: req.UserAgent()}
	c.resource = s.resources.of(r.Resource)
	if c.resource == nil && comesLater(s, r.Resource.GroupResource()) {
		if err := l.authorize(r, nameSelected(c.query.Get("fieldSelector"))); err != nil {
			return nil, err
		}
		return notServed(), nil
	}
	if c.resource == nil {
		return nil, notModelled("the resource %s; if it is a custom resource, name its definition in Options.CRDs or "+
			"Options.Uninstalled; if it is one of Kubernetes, %s", r.Resource, otherKinds)
	}
	if c.resource.deprecated != "" {
		c.warnings = append(c.warnings, c.resource.deprecated)
	}
	resp, err := c.process(s, req)
	if err != nil && req.Context().Err() == nil {
		resp, err = l.refuse(req, err), nil // which may bring warnings, too
	}
	if resp != nil {
		for i, text := range c.warnings {
			if slices.Contains(c.warnings[:i], text) { // such as of a write that was tried again after a race
				continue
			}
			if warning, err := utilnet.NewWarningHeader(299, "-", text); err == nil {
				resp.Header.Add("Warning", warning)
			}
		}
	}
	return resp, err
}

// process judges a request for a resource, and answers it.
func (c *call) process(s *Server, req *http.Request) (*http.Response, error) {
	r, l := c.Request, c.link
	if err := c.judgeScope(); err != nil {
		return nil, err
	}
	if err := l.authorize(r, nameSelected(c.query.Get("fieldSelector"))); err != nil {
		return nil, err
	}
	if err := c.judgeSubresource(s.scale); err != nil {
		return nil, err
	}
	for parameter := range c.query {
		if !known[parameter] {
			return nil, notModelled("the parameter %s", parameter)
		}
	}
	var err error
	if c.format, err = s.accepted(req.Header.Get("Accept"), c.resource); err != nil {
		return nil, err
	}
	if c.body, c.media, err = s.readBody(req); err != nil {
		return nil, err
	}
	return answerInTime(s, c)
}

// judgeSubresource refuses a subresource that the resource or the server has not. A request for a Scale goes on with
// the resource of Scales, and that of the object as its parent.
func (c *call) judgeSubresource(scale *Resource) error {
	switch {
	case c.Subresource == "":
	case c.Subresource == "status" && c.resource.Status && (c.Verb == "get" || c.Verb == "update" || c.Verb == "patch"):
	case c.Subresource == "status" && !c.resource.Status && c.resource.custom():
		return c.notFound()
	case c.Subresource == "status" && !c.resource.Status:
		return notFoundPath()
	case c.Subresource == "scale" && c.resource.scalable() &&
		(c.Verb == "get" || c.Verb == "update" || c.Verb == "patch"):
		c.parent, c.resource = c.resource, scale
	case registered(c.resource) != nil && registered(c.resource).updates(c.Subresource, c.Verb):
	case c.Subresource == "binding" && c.Resource == pods && c.Verb == "create":
	case c.Subresource == finalize && c.Resource == namespaces && c.Verb == "update":
	case c.Subresource == "scale" && c.resource.inexact != "" && c.resource.schema == nil &&
		(c.resource.custom() || c.resource.Kind == "ReplicationController"): // of a fork
		return notModelled("the scale of %s, which the cluster may have", c.Resource.Resource)
	case c.Subresource == "scale" && !c.resource.scalable() && c.resource.custom():
		return c.notFound()
	case c.Subresource == "scale" && !c.resource.scalable():
		return notFoundPath()
	default:
		return notModelled("%s of the subresource %s of %s", c.Verb, c.Subresource, c.Resource.Resource)
	}
	return nil
}

// answer does what is asked for.
func (s *Server) answer(c *call) (*http.Response, error) {
	switch {
	case c.parent != nil:
		return s.serveScale(c)
	case c.Subresource == "binding":
		return c.bind(s)
	}
	switch c.Verb {
	case "get":
		return c.reply(http.StatusOK)(s.getObject(c))
	case "list":
		return s.listObjects(c)
	case "watch":
		return s.watchObjects(c)
	case "create":
		return c.reply(http.StatusCreated)(s.createObject(c))
	case "update":
		return c.replyCreated(s.updateObject(c))
	case "patch":
		return c.replyCreated(s.patchObject(c))
	case "delete":
		return s.deleteObject(c)
	default:
		return s.deleteCollection(c)
	}
}

// known are the parameters that are read, or mean nothing here.
var known = map[string]bool{
	"resourceVersion": true, "resourceVersionMatch": true, "limit": true, "continue": true, "labelSelector": true,
	"fieldSelector": true,
	"watch":         true, "allowWatchBookmarks": true, "sendInitialEvents": true, "timeoutSeconds": true,
	"dryRun": true, "fieldManager": true, "fieldValidation": true, "force": true, "pretty": true, "timeout": true,
	"gracePeriodSeconds": true, "propagationPolicy": true, "orphanDependents": true,
}

// reply answers with an object, unless there is an error.
func (c *call) reply(code int) func(o runtime.Object, err error) (*http.Response, error) {
	return func(o runtime.Object, err error) (*http.Response, error) {
		if err != nil {
			return nil, err
		}
		return answerObject(code, c.format, o), nil
	}
}

func (c *call) replyCreated(o object, created bool, err error) (*http.Response, error) {
	code := http.StatusOK
	if created {
		code = http.StatusCreated
	}
	return c.reply(code)(o, err)
}

// judgeScope returns the error for a path with a namespace where there is none, or without one where there is one.
// Lists and watches may be of all namespaces.
func (c *call) judgeScope() error {
	switch {
	case c.resource.ClusterScoped == (c.Namespace == ""):
		return nil
	case c.resource.ClusterScoped || c.resource.custom() && c.Verb != "list" && c.Verb != "watch" || c.Name != "":
		return notFoundPath()
	case c.Verb != "list" && c.Verb != "watch": // the path is that of a list
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed,
			Reason:  metav1.StatusReasonMethodNotAllowed,
			Details: &metav1.StatusDetails{},
			Message: "the server does not allow this method on the requested resource",
		}}
	}
	return nil
}

func (c *call) notFound() error { return apierrors.NewNotFound(c.Resource.GroupResource(), c.Name) }

// notFoundPath is the answer to a path that means nothing.
func notFoundPath() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Details: &metav1.StatusDetails{},
		Message: "the server could not find the requested resource",
	}}
}

func (c *call) manager() string { return managerName(c.query.Get("fieldManager"), c.userAgent) }

func (s *Server) lookup(resource *Resource, key types.NamespacedName) object {
	return s.store.get(resource.GroupResource(), key)
}
