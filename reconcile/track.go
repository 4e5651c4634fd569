package reconcile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// TrackWrites makes controllers consistent with their own writes. One line on the configuration that all clients are made from is enough:
//
//	config.Wrap(reconcile.TrackWrites)
//
// From then on every create, update, patch, apply and delete that a Reconcile makes with its ctx, through any kind of client, is recorded for the
// key, and the key is not reconciled again before the informers of its controller have seen it. Without it, a controller that creates a pod and
// is called again a millisecond later, by a change that has nothing to do with it, finds no pod in the cache and creates a second one.
//
// A write is waited for only if an informer of the controller will see it: its answer tells namespace, labels and UID, and what an informer
// asks for is learned from its own requests, which is why informers need the same configuration: Run fails if some of them have it and some have not.
// Dry runs are not waited for, and neither are subresources that answer with something else than the object (binding, eviction, scale, token). For clients
// that have no transport to be wrapped there are [Wrote] and [Deleted].
//
// An answer that was lost (a timeout, a broken connection, a 5xx) leaves open whether the write has happened. Nothing is assumed: the informers of that
// resource list anew, once, and then the key runs. A request that the server carries out later still than that is nobody's to see, so what must not exist
// twice needs a name that is not generated: see [CreateOwned].
func TrackWrites(next http.RoundTripper) http.RoundTripper { return &tracker{next} }

type tracker struct{ next http.RoundTripper }

// WrappedRoundTripper lets client-go find the transport below.
func (t *tracker) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t *tracker) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if l, ok := ctx.Value(learnerKey{}).(*learner); ok {
		l.learn(req)
	}
	r, ok := ctx.Value(runKey{}).(*run)
	if !ok || !writes(req) {
		return t.next.RoundTrip(req)
	}
	tgt, ok := targetOf(req)
	subresource, _, _ := strings.Cut(tgt.subresource, "/")
	if !ok || separate[subresource] {
		return t.next.RoundTrip(req)
	}
	resp, err := t.next.RoundTrip(req)
	switch {
	case err != nil:
		if !unsent(err) {
			r.lost(ctx, tgt)
		}
		return resp, err
	case resp.StatusCode >= 500:
		r.lost(ctx, tgt)
		return resp, nil
	case resp.StatusCode/100 != 2:
		return resp, nil // refused
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{err}))
		r.lost(ctx, tgt)
		return resp, nil
	}
	objects, err := decodeMetadata(resp.Header.Get("Content-Type"), body)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The answer to a write cannot be read", "method", req.Method, "resource", tgt.resource,
			"object", Key{Namespace: tgt.namespace, Name: tgt.name})
		r.lost(ctx, tgt)
		return resp, nil
	}
	for _, o := range objects {
		r.wrote(ctx, req.Method, newWrite(tgt, req.Method == http.MethodDelete, o))
	}
	return resp, nil
}

// unsent reports whether a request has certainly not reached the server: there was no connection to send it on.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func writes(req *http.Request) bool {
	switch req.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return !req.URL.Query().Has("dryRun")
	}
	return false
}

// separate lists the subresources whose answer is not the object that an informer sees.
var separate = map[string]bool{"binding": true, "eviction": true, "scale": true, "token": true, "exec": true, "attach": true, "portforward": true, "proxy": true}

// failing is the rest of a body that could not be read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// write is what the server says of one object that it has written or begun to delete.
type write struct {
	target
	object          Key
	uid             types.UID
	resourceVersion string // of a deletion it says little: that is seen when the object is gone or going
	deleted         bool
	labels          map[string]string
}

func newWrite(t target, deleted bool, o metadata) write {
	w := write{target: t, deleted: deleted, uid: o.UID, resourceVersion: o.ResourceVersion, labels: o.Labels}
	w.object = Key{Namespace: o.Namespace, Name: o.Name}
	if o.Details != nil { // a Status, as answers a deletion that was completed at once
		w.object, w.uid = Key{Namespace: t.namespace, Name: t.name}, o.Details.UID
	}
	return w
}

// metadata is as much as the ledger reads of an answer: an object's metadata, or a Status's details.
type metadata struct {
	metav1.ObjectMeta
	Details *metav1.StatusDetails
}

// decodeMetadata reads the metadata of the object, or of the objects of the list, that an answer holds.
func decodeMetadata(contentType string, body []byte) ([]metadata, error) {
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return nil, fmt.Errorf("content type %q: %w", contentType, err)
	}
	// Every encoding is read into the same few fields; what else there is, is skipped.
	var answer struct {
		Kind     string            `json:"kind"`
		Metadata metav1.ObjectMeta `json:"metadata"`
		Details  json.RawMessage   `json:"details"` // of a Status; an object may have any field of that name
		Items    json.RawMessage   `json:"items"`   // of a list; the same
	}
	switch media {
	case "application/json":
		err = json.Unmarshal(body, &answer)
	case "application/cbor":
		// The decoder refuses fields that are not asked for, so everything is decoded, and what matters picked from it.
		var everything map[string]any
		if err = direct.Unmarshal(body, &everything); err == nil {
			if body, err = json.Marshal(everything); err == nil {
				err = json.Unmarshal(body, &answer)
			}
		}
	case "application/vnd.kubernetes.protobuf":
		return decodeProtobuf(body)
	default:
		err = fmt.Errorf("the content type %q is none of JSON, CBOR and protobuf", media)
	}
	switch {
	case err != nil:
		return nil, err
	case answer.Kind == "Status":
		var details *metav1.StatusDetails
		if answer.Details == nil {
			return nil, nil
		}
		err := json.Unmarshal(answer.Details, &details)
		return []metadata{{Details: details}}, err
	case strings.HasSuffix(answer.Kind, "List"):
		var items []metav1.PartialObjectMetadata
		if answer.Items == nil {
			return nil, nil
		}
		err := json.Unmarshal(answer.Items, &items)
		return each(items), err
	default:
		return []metadata{{ObjectMeta: answer.Metadata}}, nil
	}
}

func each(items []metav1.PartialObjectMetadata) (all []metadata) {
	for _, item := range items {
		all = append(all, metadata{ObjectMeta: item.ObjectMeta})
	}
	return all
}

// decodeProtobuf reads an answer in Kubernetes' protobuf encoding: four bytes, then a runtime.Unknown whose Raw is the object. Each API object
// has its metadata in field 1, and each list its items in field 2, so the messages of PartialObjectMetadata read them all; of a list of
// objects they also read field 2 of an object as items, so the kind has to tell which it is.
func decodeProtobuf(body []byte) ([]metadata, error) {
	magic := []byte{'k', '8', 's', 0}
	raw, ok := bytes.CutPrefix(body, magic)
	if !ok {
		return nil, fmt.Errorf("the body does not start with protobuf's mark %q", magic)
	}
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(raw); err != nil {
		return nil, err
	}
	switch kind := unknown.Kind; {
	case kind == "Status":
		var status metav1.Status
		if err := status.Unmarshal(unknown.Raw); err != nil || status.Details == nil {
			return nil, err
		}
		return []metadata{{Details: status.Details}}, nil
	case strings.HasSuffix(kind, "List"):
		var list metav1.PartialObjectMetadataList
		err := list.Unmarshal(unknown.Raw)
		return each(list.Items), err
	default:
		var object metav1.PartialObjectMetadata
		if err := object.Unmarshal(unknown.Raw); err != nil {
			return nil, err
		}
		return []metadata{{ObjectMeta: object.ObjectMeta}}, nil
	}
}

// learner finds out what an informer asks for, from its requests: in each namespace that it follows by itself, or in all of them at once.
type learner struct {
	mu     sync.RWMutex
	scopes map[string]*scope // guarded by mu; by namespace
}

type learnerKey struct{}

func withLearner(ctx context.Context, l *learner) context.Context {
	return context.WithValue(ctx, learnerKey{}, l)
}

func (l *learner) learn(req *http.Request) {
	t, ok := targetOf(req)
	if !ok {
		return
	}
	if req.Context().Err() != nil {
		return // the informer has left that namespace, or the selectors, already
	}
	query := req.URL.Query()
	s := &scope{target: t, asked: [2]string{query.Get("labelSelector"), query.Get("fieldSelector")}}
	l.mu.Lock()
	defer l.mu.Unlock()
	// A list of one object asks for the server's version, whatever is followed.
	if known := l.scopes[t.namespace]; known != nil && (known.asked == s.asked || query.Get("limit") == "1") {
		return
	}
	var err error
	if s.labels, err = labels.Parse(s.asked[0]); err != nil {
		return // the server refuses it, too
	}
	if s.fields, err = fields.ParseSelector(s.asked[1]); err != nil {
		return
	}
	if l.scopes == nil {
		l.scopes = make(map[string]*scope)
	}
	// All of them are followed in one list, or some by themselves.
	if t.namespace == metav1.NamespaceAll {
		clear(l.scopes)
	} else {
		delete(l.scopes, metav1.NamespaceAll)
	}
	l.scopes[t.namespace] = s
}

// has reports whether anything has been learned.
func (l *learner) has() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.scopes) > 0
}

// of returns what the informer asks for that may hold objects of a namespace, or nil.
func (l *learner) of(namespace string) *scope {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if s, ok := l.scopes[namespace]; ok {
		return s
	}
	return l.scopes[metav1.NamespaceAll]
}

// all returns whatever the informer asks for, or did once: of a namespace that it no longer follows that is not forgotten, but there [cache.now] knows better.
func (l *learner) all() []*scope {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Collect(maps.Values(l.scopes))
}

// scope is what an informer asks for, in one namespace or in all.
type scope struct {
	target target
	asked  [2]string // the selectors, as the request has them
	labels labels.Selector
	fields fields.Selector
}

// about reports whether a request is about the resource that the informer lists.
func (s *scope) about(t target) bool {
	return s.target.host == t.host && s.target.group == t.group && s.target.resource == t.resource
}

// reaches reports whether a request may be about objects that the informer lists, as far as their namespace says.
func (s *scope) reaches(t target) bool {
	return s.target.namespace == "" || t.namespace == "" || s.target.namespace == t.namespace
}

// includes reports whether the informer is certain to list an object such as the one written, in a namespace of the scope. Of field selectors, only those
// on the name and the namespace can be judged.
func (s *scope) includes(w write) bool {
	if !s.labels.Matches(labels.Set(w.labels)) {
		return false
	}
	for _, term := range s.fields.Requirements() {
		if term.Field != "metadata.name" && term.Field != "metadata.namespace" {
			return false
		}
	}
	return s.fields.Matches(fields.Set{"metadata.name": w.object.Name, "metadata.namespace": w.object.Namespace})
}
