package reconciletest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Options may be left zero.
type Options struct {
	// CRDs are files, or directories of them, with the manifests of CustomResourceDefinitions, such as "config/crd".
	// See [ReadCRDs] for what the server does with them. In a directory, subdirectories and files whose names end in
	// neither .yaml, .yml nor .json are passed over.
	CRDs []string
	// Resources are custom resources that are not read from files. A group of Kubernetes itself is refused: the real
	// server has checks of its own for its kinds, such as those against escalation by a RoleBinding.
	Resources []Resource
	// Uninstalled are files, or directories of them, as CRDs: kinds that are not there at first. Requests for them are
	// answered with 404 until [Server.Install], or a client, has created the CustomResourceDefinition.
	Uninstalled []string
	// Rules compiles the rules in CEL (x-kubernetes-validations) of custom resources. Nil: a custom resource that has
	// such rules is refused. Package github.com/thermostat-go/thermostat/reconcile/reconciletest/cel has one.
	Rules RuleCompiler
	// Kinds are kinds of Kubernetes that its own code serves, in place of the models of this package or beside them.
	// Package github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin has them. Not with Base.
	Kinds []Kind
	// Aggregated are versions of API groups that a handler serves, as a metrics server serves metrics.k8s.io/v1beta1
	// behind a real API server, by an APIService. The handler gets each request for a path below /apis/GROUP/VERSION,
	// and one for that path itself, which is discovery: it answers with an APIResourceList. Before that the roles and
	// the faults of the link apply; the header X-Remote-User names the link's user. The handler runs on the goroutine
	// of the client, at the same time as for other clients, and its answer goes out when it returns: it cannot serve
	// watches. A group that the server has itself is refused. No APIService is needed, and those that package builtin
	// keeps lead no request here.
	Aggregated map[schema.GroupVersion]http.Handler
	// Webhooks are handlers of the webhooks that the server calls: those of a MutatingWebhookConfiguration and a
	// ValidatingWebhookConfiguration, and those of conversions. A key is the host of a URL, with or without its port,
	// or the name of a Service as in "mine.operators.svc". A handler runs on a goroutine of its own, and gets a POST
	// over no TLS. Webhooks of a program that runs with the context of a [Link] need no handler: see [Link.Context].
	Webhooks map[string]http.Handler
	// Roles are files, or directories of them, with the manifests of Roles, ClusterRoles, RoleBindings and
	// ClusterRoleBindings: what the users of [Server.LinkAs] may do. Objects of other kinds in them are passed over, so
	// the manifest that installs a controller can be given as it is. Empty: every user may do everything.
	Roles []string
	// Manifests are files, or directories of them, with the manifests of objects that exist from the beginning, such as
	// the configurations of webhooks. They are applied in order, as kubectl apply --server-side does. One of a
	// CustomResourceDefinition may change the conversion of one of CRDs, or defines a kind for the documents after it.
	Manifests []string
	// Seed makes the names that the server generates, and the UIDs. The same seed and the same requests give the same.
	Seed uint64
	// Namespaces exist from the beginning. Nil: default.
	Namespaces []string
	// Base is a cluster that the server is a fork of: see [Base]. Nil: the server begins empty. The namespaces are then
	// those of the base, unless Namespaces names some.
	Base Base
	// CollectAfter is how long the garbage collector waits after a write before it acts on it. Zero: 10 ms.
	CollectAfter time.Duration
}

// Server is an API server with its storage. Make one with [NewServer] in a test, or with [Start] in a program, and
// clients with [Server.Config], [Server.Link] or [Link.Listen]. Safe for concurrent use; the methods that fail the test
// are for the test's own goroutine.
type Server struct {
	t          testing.TB // of a server of a program: a program
	store      *store
	resources  resources
	codecs     serializer.CodecFactory
	scale      *Resource // of the subresources of that name
	aggregated aggregated
	collector  *collector
	services   servicePool
	fork       *fork   // nil: there is no base
	access     *access // nil: every user may do everything
	direct     *Link
	webhooks   map[string]http.Handler
	hosts      hosts
	rules      RuleCompiler
	types      managedfields.TypeConverter

	uninstalled map[string][]byte  // by name of the definition
	first       map[types.UID]bool // the definitions that are there from the beginning

	// Guarded by store.mu: what happens to calls of webhooks, and how many calls and reviews there were.
	hookFault          func(WebhookCall) Fault
	hookCalls, reviews int

	exemptUsers bool // set before the first request: faults of webhooks do not meet the direct link

	drawn []drawnName // by programs; set before the first request

	mu        sync.Mutex
	random    *rand.Rand // guarded by mu
	uids      uint64     // guarded by mu
	listeners []func()   // guarded by mu: each ends one
	// generated are the prefixes of the names that the server has made, by what they name, without UID; guarded by mu.
	generated map[identity]string
}

// NewServer makes a server that holds nothing but its namespaces. An option that is wrong fails the test at once. In a
// bubble of testing/synctest, call it inside the bubble.
//
// The server ends with the test, as a process that is killed: watches end, listeners close, and requests are refused.
func NewServer(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := Start(o)
	if err != nil {
		t.Fatalf("reconciletest.NewServer: %v", err)
	}
	s.t = t
	t.Cleanup(s.Close)
	return s
}

// Start makes a server for a program, such as a demonstration, that has no test. It returns an error for an option that
// is wrong. The caller ends the server with [Server.Close]. The methods that fail a test panic instead.
//
// The server keeps every version of every object, so its memory grows with each write.
func Start(o Options) (*Server, error) {
	s := &Server{
		t: program{}, store: newStore(), generated: map[identity]string{}, first: map[types.UID]bool{},
		codecs: serializer.NewCodecFactory(scheme.Scheme), random: rand.New(rand.NewPCG(o.Seed, 0)),
		webhooks: o.Webhooks, rules: o.Rules, types: applyconfigurations.NewTypeConverter(scheme.Scheme),
		aggregated: maps.Clone(o.Aggregated),
	}
	s.collector = newCollector(s, cmp.Or(o.CollectAfter, 10*time.Millisecond))
	s.direct = s.Link()
	served, err := servedAtFirst(o)
	if err == nil && len(o.Roles) > 0 {
		s.access, err = readAccess(o.Roles)
	}
	if err != nil {
		return nil, err
	}
	for _, r := range served {
		if err := s.add(&r); err != nil {
			return nil, err
		}
	}
	if err := install(s, newDefinitionResource(s)); err != nil {
		return nil, err
	}
	if err := define(s); err != nil {
		return nil, fmt.Errorf("custom resources: %w", err)
	}
	if err := readUninstalled(s, o); err != nil {
		return nil, err
	}
	if err := s.aggregated.validate(s.resources.all()); err != nil {
		return nil, err
	}
	if s.scale, err = newScaleResource(); err != nil {
		return nil, fmt.Errorf("scale: %w", err)
	}
	if o.Base != nil {
		s.fork = newFork(s, o.Base)
	}
	if o.Namespaces == nil && o.Base == nil {
		o.Namespaces = []string{metav1.NamespaceDefault}
	}
	for _, name := range o.Namespaces {
		if err := createNamespace(s, name); err != nil {
			return nil, fmt.Errorf("namespace %s: %w", name, err)
		}
	}
	err = eachManifest(o.Manifests, func(document []byte) error {
		if len(bytes.TrimSpace(document)) == 0 {
			return nil
		}
		return applyDocument(context.Background(), s, string(document))
	})
	if err != nil {
		return nil, fmt.Errorf("manifests: %w", err)
	}
	return s, nil
}

// prepare does once what is the same for all servers that are made with the options.
func (o *Options) prepare() error {
	defined, err := readDefinitions(o.CRDs)
	if err != nil {
		return err
	}
	o.CRDs, o.Resources = nil, slices.Concat(defined, o.Resources)
	for i := range o.Resources {
		if err := o.Resources[i].compileRules(o.Rules); err != nil {
			return fmt.Errorf("resource %s: %w", o.Resources[i].GroupVersionResource, err)
		}
	}
	return nil
}

// servedAtFirst returns the resources that options ask for.
func servedAtFirst(o Options) ([]Resource, error) {
	own, err := withKinds(o)
	if err != nil {
		return nil, err
	}
	defined, err := readDefinitions(o.CRDs)
	return slices.Concat(own, defined, o.Resources), err
}

// Close ends the server, as a process that is killed: watches end, listeners close, and requests are refused. The
// server of a test is closed at the end of the test.
func (s *Server) Close() {
	s.collector.stop()
	s.store.stop()
	s.hosts.closeAll(nil)
	s.mu.Lock()
	listeners := s.listeners
	s.listeners = nil
	s.mu.Unlock()
	for _, end := range listeners {
		end()
	}
}

// program stands for the test where there is none.
type program struct{ testing.TB }

func (program) Helper()                           {}
func (program) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// otherKinds says what to do about a kind that is not modelled.
const otherKinds = "the documentation of package reconciletest lists those that the server has; for others, set " +
	"Options.Kinds to the Kinds of package github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin, or " +
	"use the real control plane of package reconciletest/cluster"

// otherFields says what to do about a field that is not modelled.
func otherFields(resource string) string {
	switch resource {
	case "namespaces", "services", "events": // package builtin has them not
		return "the real control plane of package reconciletest/cluster has all fields"
	}
	return "for all fields, set Options.Kinds to the Kinds of package " +
		"github.com/thermostat-go/thermostat/reconcile/reconciletest/builtin"
}

// ofKubernetes reports whether a group is one of Kubernetes itself. The group of a custom resource has a dot.
func ofKubernetes(group string) bool {
	if !strings.HasSuffix(group, ".k8s.io") {
		return !strings.Contains(group, ".")
	}
	own := runtime.NewScheme() // scheme.Scheme may have been added to
	return scheme.AddToScheme(own) != nil || own.IsGroupRegistered(group) || group == "apiextensions.k8s.io" ||
		group == "apiregistration.k8s.io"
}

// add makes the server serve a resource.
func (s *Server) add(r *Resource) error {
	switch {
	case r.GroupVersionResource.Resource == "" || r.Version == "" || r.Kind == "":
		return fmt.Errorf("the resource %s of kind %q needs a resource, a version and a kind", r.GroupVersionResource,
			r.Kind)
	case r.custom() && ofKubernetes(r.Group):
		return fmt.Errorf("the resource %s is one of Kubernetes itself and no custom resource, by its group %q: %s",
			r.GroupVersionResource, r.Group, otherKinds)
	case s.resources.of(r.GroupVersionResource) != nil:
		return fmt.Errorf("the resource %s is there twice", r.GroupVersionResource)
	}
	for _, other := range s.resources.all() {
		if other.custom() && other.GroupResource() == r.GroupResource() && (r.of == nil || r.of != other.of) {
			return fmt.Errorf("the resource %s is there in two versions that no definition joins: read both from one "+
				"CustomResourceDefinition, with Options.CRDs or ReadCRDs", r.GroupResource())
		}
	}
	return install(s, r)
}

// install makes the server serve a resource that may be one of Kubernetes.
func install(s *Server, r *Resource) error {
	if err := r.compileRules(s.rules); err != nil {
		return fmt.Errorf("resource %s: %w", r.GroupVersionResource, err)
	}
	if err := r.manageFields(s.types); err != nil {
		return fmt.Errorf("resource %s: %w", r.GroupVersionResource, err)
	}
	s.resources.add(r)
	return nil
}

// codecsOf returns what a server encodes and decodes objects of a resource with; nil: Statuses.
func codecsOf(s *Server, r *Resource) serializer.CodecFactory {
	if r != nil && schemeOf(r) != scheme.Scheme {
		return r.builtin.codecs
	}
	return s.codecs
}

// orderedResources returns the resources in a fixed order.
func orderedResources(s *Server) []*Resource {
	return slices.SortedFunc(maps.Values(s.resources.all()), func(a, b *Resource) int {
		return strings.Compare(a.GroupVersionResource.String(), b.GroupVersionResource.String())
	})
}

// Config returns a configuration for clients of any kind, over a connection without faults. The clients have no rate
// limit and may do everything.
func (s *Server) Config() *rest.Config { return s.direct.Config() }

// Version returns the resourceVersion of the last write.
func (s *Server) Version() int64 {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return s.store.version
}

// Compact forgets what was before the present: the server answers lists at older versions, continued lists and watches
// from there with 410.
func (s *Server) Compact() { s.store.compact() }

// Restore takes the server back to a version that [Server.Version] returned, as a restore of etcd from a backup does:
// every watch ends, and the server gives out versions a second time. It fails the test if the server has not had that
// version.
func (s *Server) Restore(version int64) {
	s.t.Helper()
	if now := s.Version(); version < firstVersion || version > now {
		s.t.Fatalf("reconciletest: restore to version %d: the server has had versions from %d to %d", version,
			firstVersion, now)
	}
	s.collector.passing <- struct{}{} // a pass may serve a kind, or withdraw one
	s.store.restore(version)
	err := followDefinitions(s)
	<-s.collector.passing
	if err != nil {
		s.t.Fatalf("reconciletest: restore to version %d: %v", version, err)
	}
	s.collector.wrote(nil) // what had begun goes on
}

// CutWatches ends every watch, as a server does that is shut down.
func (s *Server) CutWatches() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.epoch++
	s.store.wakeLocked()
}

// newUID returns a UID that was not used before.
func (s *Server) newUID() types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.uids++
	return types.UID(fmt.Sprintf("%08x-0000-4000-8000-%012x", s.random.Uint32(), s.uids))
}

// A name that the server generates has so many characters of an alphabet at its end, and at most so many in all.
const (
	generatedAlphabet                 = "bcdfghjklmnpqrstvwxz2456789"
	generatedLength, generatedLongest = 5, 63
)

// generateName makes a name for an object from a prefix, as the real server does: five characters that form no words.
func (s *Server) generateName(resource, namespace, prefix string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	b.WriteString(prefix[:min(len(prefix), generatedLongest-generatedLength)])
	for range generatedLength {
		b.WriteByte(generatedAlphabet[s.random.IntN(len(generatedAlphabet))])
	}
	s.generated[identity{resource: resource, namespace: namespace, name: b.String()}] = prefix
	return b.String()
}

// prefixOf returns what the server has made the name of an object from, or nothing: somebody else has chosen it, such
// as a program that gives an object the generated name of another one.
func prefixOf(s *Server, resource, namespace, name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generated[identity{resource: resource, namespace: namespace, name: name}]
}

// makeList makes the list that is the answer to a request for these objects, which it shares.
func (s *Server) makeList(r *Resource, objects []object) (runtime.Object, error) {
	list, err := r.makeList()
	if err != nil {
		return nil, err
	}
	items := make([]runtime.Object, len(objects))
	for i, o := range objects {
		items[i] = o
	}
	if err := meta.SetList(list, items); err != nil || r.custom() {
		return list, err
	}
	// SetList copies the structures, so that what is changed here is not the stored object. Items of built-in lists do
	// not name their kind.
	return list, meta.EachListItem(list, func(o runtime.Object) error {
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		return nil
	})
}
