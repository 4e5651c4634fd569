package plan

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// askAgain is how long a refused list is not asked for again.
const askAgain = 10 * time.Second

// attempts is how often a dry run in the cluster is tried that fails since others write to the same object meanwhile.
const attempts = 5

// pageSize is how many objects one request asks the cluster for.
const pageSize = 500

// base is the cluster below a fork. Its only requests are GETs and dry runs: see do.
type base struct {
	life      context.Context // of the fork: what has begun to be read is read, though the client does not wait
	*recorder                 // which is told of writes, and of what is approximate
	client    *http.Client
	root      *url.URL
	known     *runtime.Scheme // the types of Kubernetes: a program may add its own to scheme.Scheme

	admits bool          // Options.Admission
	pace   *rate.Limiter // of dry runs: a program that writes in a loop is not to be felt by the cluster

	mu         sync.Mutex
	elsewhere  map[schema.GroupVersion]bool                 // guarded by mu: see aggregated; nil: not known yet
	limited    map[string]bool                              // guarded by mu: namespaces, and whether they have a quota
	discovered map[schema.GroupVersion][]metav1.APIResource // guarded by mu
	refusals   map[string]answered                          // guarded by mu, by path
}

func newBase(life context.Context, cfg *rest.Config, r *recorder) (*base, error) {
	cfg = rest.CopyConfig(cfg)
	if cfg.UserAgent == "" {
		cfg.UserAgent = "thermostat-plan"
	}
	made, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	client := *made
	client.Transport = onlyDryRuns{cmp.Or[http.RoundTripper](made.Transport, http.DefaultTransport)}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	root, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, err
	}
	known := runtime.NewScheme()
	if err := scheme.AddToScheme(known); err != nil {
		return nil, err
	}
	return &base{known: known, life: life, recorder: r, client: &client, root: root, pace: rate.NewLimiter(20, 40),
		discovered: make(map[schema.GroupVersion][]metav1.APIResource), refusals: make(map[string]answered),
		limited: make(map[string]bool)}, nil
}

// get asks the cluster for something. An answer other than 2xx is an error.
func (b *base) get(ctx context.Context, at string, query url.Values, accept string) (*http.Response, error) {
	return b.do(ctx, http.MethodGet, at, query, accept, nil)
}

// do is the only way to the cluster. It sends GETs and dry runs.
func (b *base) do(ctx context.Context, method, at string, query url.Values, accept string, body []byte) (
	*http.Response, error) {
	u := *b.root
	u.Path, u.RawQuery = path.Join("/", b.root.Path, at), query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	if method != http.MethodGet {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("the cluster below the fork does not answer: %v", err))
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	var status metav1.Status
	if json.Unmarshal(answer, &status) != nil || status.Kind != "Status" {
		return nil, apierrors.NewGenericServerResponse(resp.StatusCode, "get", schema.GroupResource{}, "",
			strings.TrimSpace(string(answer)), 0, true)
	}
	return nil, &apierrors.StatusError{ErrStatus: status}
}

// onlyDryRuns lets GETs and dry runs pass, and nothing else. It is where requests leave for the cluster. No redirect is
// followed: it may lead to where a dry run is none.
type onlyDryRuns struct{ below http.RoundTripper }

func (o onlyDryRuns) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodGet && !slices.Equal(req.URL.Query()["dryRun"], []string{metav1.DryRunAll}) {
		return nil, fmt.Errorf("plan: %s %s is neither a read nor a dry run", req.Method, req.URL.Path)
	}
	return o.below.RoundTrip(req)
}

// read decodes the answer to a GET.
func (b *base) read(ctx context.Context, at string, query url.Values, accept string, into any) error {
	resp, err := b.get(ctx, at, query, accept)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(into)
}

func rootOf(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.String()
}

// pathOf returns the path of a collection.
func pathOf(r schema.GroupVersionResource, namespace string) string {
	at := rootOf(r.GroupVersion()) + "/"
	if namespace != "" {
		at += "namespaces/" + namespace + "/"
	}
	return at + r.Resource
}

// Resource says how the cluster serves a resource, by its discovery documents and the definition.
func (b *base) Resource(_ context.Context, r schema.GroupVersionResource) (reconciletest.BaseResource, error) {
	ctx := b.life
	served, err := b.discover(ctx, r.GroupVersion())
	at := slices.IndexFunc(served, func(one metav1.APIResource) bool { return one.Name == r.Resource })
	if apierrors.IsNotFound(err) || err == nil && at < 0 {
		b.lacks(r)
		return reconciletest.BaseResource{}, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
			Message: "the server could not find the requested resource",
		}}
	}
	if err != nil {
		return reconciletest.BaseResource{}, err
	}
	said := reconciletest.BaseResource{
		Kind: served[at].Kind, ClusterScoped: !served[at].Namespaced,
		Listed: slices.Contains(served[at].Verbs, "list"),
		Status: slices.ContainsFunc(served, func(one metav1.APIResource) bool {
			return one.Name == r.Resource+"/status"
		}),
	}
	if b.known.IsGroupRegistered(r.Group) {
		return said, nil
	}
	var definition json.RawMessage
	err = b.read(ctx, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+r.Resource+"."+r.Group, nil,
		"application/json", &definition)
	switch {
	case err == nil:
		said.Definition = definition
	case apierrors.IsForbidden(err):
		b.forbidden("get", definitions, "")
	case !apierrors.IsNotFound(err): // or the API is an aggregated one
		return said, err
	}
	return said, nil
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
	Resource: "customresourcedefinitions"}

// discover returns the resources of a version of a group.
func (b *base) discover(ctx context.Context, gv schema.GroupVersion) ([]metav1.APIResource, error) {
	b.mu.Lock()
	known, ok := b.discovered[gv]
	b.mu.Unlock()
	if ok {
		return known, nil
	}
	var list metav1.APIResourceList
	if err := b.read(ctx, rootOf(gv), nil, "application/json", &list); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.discovered[gv] = list.APIResources
	return list.APIResources, nil
}

// Objects lists a resource in pages, all of which are of one version.
func (b *base) Objects(_ context.Context, r schema.GroupVersionResource, namespace string,
	each func([]byte) error) (version int64, err error) {
	ctx, at := b.life, pathOf(r, namespace)
	if err := b.refused(at); err != nil {
		return 0, err
	}
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for {
		var page struct {
			Metadata metav1.ListMeta   `json:"metadata"`
			Items    []json.RawMessage `json:"items"`
		}
		if err := b.read(ctx, at, query, "application/json", &page); err != nil {
			if apierrors.IsForbidden(err) {
				b.forbidden("list", r, namespace)
				b.remember(at, err)
			}
			return 0, err
		}
		for _, item := range page.Items {
			if err := each(item); err != nil {
				return 0, fmt.Errorf("%s of the cluster: %w", r.Resource, err)
			}
		}
		if page.Metadata.Continue != "" {
			query.Set("continue", page.Metadata.Continue)
			continue
		}
		if namespace != "" {
			b.suffices("list", r)
		}
		if page.Metadata.ResourceVersion == "" { // of an aggregated API
			return 0, nil
		}
		if version, err = strconv.ParseInt(page.Metadata.ResourceVersion, 10, 64); err != nil {
			return 0, fmt.Errorf("the list of %s has a resourceVersion that is no number", r.Resource)
		}
		return version, nil
	}
}

// refused returns an answer by which the cluster has refused a list a short while ago: the program may ask for it again
// and again, and each of its writes asks for webhooks and namespaces.
func (b *base) refused(at string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r, ok := b.refusals[at]; ok && time.Since(r.at) < askAgain {
		return r.err
	}
	return nil
}

func (b *base) remember(at string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refusals[at] = answered{err, time.Now()}
}

// answered is what the cluster has answered, and when.
type answered struct {
	err error
	at  time.Time
}

// documents are the paths that are passed on to the cluster: what says which API it has. A GET of another one, such as
// that of a proxy, may do something.
var documents = regexp.MustCompile(`^(/api(/[\w.-]+)?|/apis(/[\w.-]+){0,2}|/openapi/v[23](/[\w.-]+)*|/version|` +
	`/(healthz|livez|readyz)(/[\w.-]+)*|/\.well-known/openid-configuration|/openid/v1/jwks)/?$`)

// Document passes a request for discovery on to the cluster.
func (b *base) Document(req *http.Request) (*http.Response, error) {
	at := req.URL.Path
	if !documents.MatchString(at) || strings.Contains(at, "..") { // which would lead elsewhere
		return nil, apierrors.NewGenericServerResponse(http.StatusNotImplemented, "get", schema.GroupResource{}, "",
			"a fork of a cluster has no such path", 0, true)
	}
	accept := req.Header.Get("Accept")
	if _, _, err := mime.ParseMediaType(accept); accept == "" || err != nil && !strings.Contains(accept, ",") {
		accept = "application/json"
	}
	return b.get(req.Context(), at, req.URL.Query(), accept)
}

// contents calls each for the metadata of each object of a resource, in a namespace or in all.
func (b *base) contents(ctx context.Context, r schema.GroupVersionResource, namespace string,
	each func(metav1.PartialObjectMetadata)) error {
	const accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for {
		var page metav1.PartialObjectMetadataList
		if err := b.read(ctx, pathOf(r, namespace), query, accept, &page); err != nil {
			if apierrors.IsForbidden(err) {
				b.forbidden("list", r, namespace)
			}
			return err
		}
		for _, o := range page.Items {
			each(o)
		}
		if page.Continue == "" {
			return nil
		}
		query.Set("continue", page.Continue)
	}
}

// resources returns what can be listed in the cluster, in the preferred version of each group.
func (b *base) resources(ctx context.Context) (all []listed, err error) {
	var groups metav1.APIGroupList
	if err := b.read(ctx, "/apis", nil, "application/json", &groups); err != nil {
		return nil, err
	}
	versions := []schema.GroupVersion{{Version: "v1"}}
	for _, g := range groups.Groups {
		versions = append(versions, schema.GroupVersion{Group: g.Name, Version: g.PreferredVersion.Version})
	}
	for _, gv := range versions {
		served, err := b.discover(ctx, gv)
		if err != nil { // such as of an aggregated API that is down
			b.Approximate(reconciletest.Request{Verb: "list", Resource: gv.WithResource("*")},
				fmt.Sprintf("what depends on a deleted object is not known there: %v", err))
			continue
		}
		for _, one := range served {
			if slices.Contains(one.Verbs, "list") && slices.Contains(one.Verbs, "delete") {
				all = append(all, listed{gv.WithResource(one.Name), gv.WithKind(one.Kind), one.Namespaced})
			}
		}
	}
	return all, nil
}

// listed is a resource that can be listed.
type listed struct {
	schema.GroupVersionResource
	kind       schema.GroupVersionKind
	namespaced bool
}
