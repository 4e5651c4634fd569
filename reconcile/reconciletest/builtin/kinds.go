package builtin

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints/deprecation"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	"k8s.io/kubernetes/pkg/kubelet/client"
	configmapstorage "k8s.io/kubernetes/pkg/registry/core/configmap/storage"
	endpointstorage "k8s.io/kubernetes/pkg/registry/core/endpoint/storage"
	limitrangestorage "k8s.io/kubernetes/pkg/registry/core/limitrange/storage"
	nodestorage "k8s.io/kubernetes/pkg/registry/core/node/storage"
	volumestorage "k8s.io/kubernetes/pkg/registry/core/persistentvolume/storage"
	claimstorage "k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim/storage"
	podstorage "k8s.io/kubernetes/pkg/registry/core/pod/storage"
	podtemplatestorage "k8s.io/kubernetes/pkg/registry/core/podtemplate/storage"
	controllerstorage "k8s.io/kubernetes/pkg/registry/core/replicationcontroller/storage"
	quotastorage "k8s.io/kubernetes/pkg/registry/core/resourcequota/storage"
	secretstorage "k8s.io/kubernetes/pkg/registry/core/secret/storage"
	accountstorage "k8s.io/kubernetes/pkg/registry/core/serviceaccount/storage"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	admissionregistration "k8s.io/kubernetes/pkg/registry/admissionregistration/rest"
	apps "k8s.io/kubernetes/pkg/registry/apps/rest"
	autoscaling "k8s.io/kubernetes/pkg/registry/autoscaling/rest"
	batch "k8s.io/kubernetes/pkg/registry/batch/rest"
	certificates "k8s.io/kubernetes/pkg/registry/certificates/rest"
	coordination "k8s.io/kubernetes/pkg/registry/coordination/rest"
	discovery "k8s.io/kubernetes/pkg/registry/discovery/rest"
	events "k8s.io/kubernetes/pkg/registry/events/rest"
	flowcontrol "k8s.io/kubernetes/pkg/registry/flowcontrol/rest"
	networking "k8s.io/kubernetes/pkg/registry/networking/rest"
	node "k8s.io/kubernetes/pkg/registry/node/rest"
	policy "k8s.io/kubernetes/pkg/registry/policy/rest"
	rbac "k8s.io/kubernetes/pkg/registry/rbac/rest"
	resource "k8s.io/kubernetes/pkg/registry/resource/rest"
	scheduling "k8s.io/kubernetes/pkg/registry/scheduling/rest"
	storagekinds "k8s.io/kubernetes/pkg/registry/storage/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// Kinds returns the kinds, for the option Kinds of a server.
func Kinds() []reconciletest.Kind { return slices.Clone(all()) }

// all makes the kinds once for all servers: they hold nothing.
var all = sync.OnceValue(func() []reconciletest.Kind {
	kinds, err := makeKinds()
	if err != nil {
		panic(err) // it depends on nothing but the modules that are linked
	}
	return kinds
})

// provider is what each group of kinds has a type for.
type provider interface {
	GroupName() string
	NewRESTStorage(serverstorage.APIResourceConfigSource, generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo,
		error)
}

// providers are those of the real server, but for the ones of groups that hold no objects, and for the core group,
// whose provider starts allocators of addresses and ports: see core.
func providers() []provider {
	anybody := authorizerfactory.NewAlwaysAllowAuthorizer()
	return []provider{
		core{},
		admissionregistration.RESTStorageProvider{Authorizer: anybody, DiscoveryClient: noDiscovery{}},
		aggregation{},
		apps.StorageProvider{},
		autoscaling.RESTStorageProvider{},
		batch.RESTStorageProvider{},
		certificates.RESTStorageProvider{Authorizer: anybody},
		coordination.RESTStorageProvider{},
		discovery.StorageProvider{},
		events.RESTStorageProvider{},
		flowcontrol.RESTStorageProvider{},
		networking.RESTStorageProvider{},
		node.RESTStorageProvider{},
		policy.RESTStorageProvider{},
		rbac.RESTStorageProvider{Authorizer: anybody},
		resource.RESTStorageProvider{NamespaceClient: noNamespaces{}, Authorizer: anybody},
		scheduling.RESTStorageProvider{},
		storagekinds.RESTStorageProvider{},
	}
}

// core has the kinds of the core group that are served by the code of Kubernetes.
type core struct{}

func (core) GroupName() string { return "" }

func (core) NewRESTStorage(_ serverstorage.APIResourceConfigSource, options generic.RESTOptionsGetter) (
	group genericapiserver.APIGroupInfo, err error) {
	kinds := map[string]rest.Storage{}
	if kinds["endpoints"], err = endpointstorage.NewREST(options); err != nil {
		return group, err
	}
	if kinds["limitranges"], err = limitrangestorage.NewREST(options); err != nil {
		return group, err
	}
	if kinds["podtemplates"], err = podtemplatestorage.NewREST(options); err != nil {
		return group, err
	}
	if kinds["persistentvolumes"], kinds["persistentvolumes/status"], err = volumestorage.NewREST(options); err != nil {
		return group, err
	}
	if kinds["resourcequotas"], kinds["resourcequotas/status"], err = quotastorage.NewREST(options); err != nil {
		return group, err
	}
	kinds["persistentvolumeclaims"], kinds["persistentvolumeclaims/status"], err = claimstorage.NewREST(options)
	if err != nil {
		return group, err
	}
	pods, err := podstorage.NewStorage(options, nil, nil, nil, authorizerfactory.NewAlwaysAllowAuthorizer())
	if err != nil {
		return group, err
	}
	kinds["pods"], kinds["pods/status"], kinds["pods/resize"] = pods.Pod, pods.Status, pods.Resize
	kinds["pods/ephemeralcontainers"] = pods.EphemeralContainers
	kinds["pods/binding"], kinds["pods/eviction"] = pods.Binding, pods.Eviction
	kinds["pods/log"], kinds["pods/exec"], kinds["pods/attach"] = pods.Log, pods.Exec, pods.Attach
	kinds["pods/portforward"], kinds["pods/proxy"] = pods.PortForward, pods.Proxy
	controllers, err := controllerstorage.NewStorage(options)
	if err != nil {
		return group, err
	}
	kinds["replicationcontrollers"], kinds["replicationcontrollers/status"] = controllers.Controller, controllers.Status
	kinds["replicationcontrollers/scale"] = controllers.Scale
	group.VersionedResourcesStorageMap = map[string]map[string]rest.Storage{"v1": kinds}
	return group, addPlain(kinds, options)
}

// addPlain adds the kinds of the core group that controllers of Kubernetes read and write, and no registry of others
// needs.
func addPlain(kinds map[string]rest.Storage, options generic.RESTOptionsGetter) (err error) {
	nodes, err := nodestorage.NewStorage(options, client.KubeletClientConfig{}, nil)
	if err != nil {
		return err
	}
	kinds["nodes"], kinds["nodes/status"], kinds["nodes/proxy"] = nodes.Node, nodes.Status, nodes.Proxy
	if kinds["configmaps"], err = configmapstorage.NewREST(options); err != nil {
		return err
	}
	secrets, err := secretstorage.NewREST(options)
	if err != nil {
		return err
	}
	pods := kinds["pods"].(rest.Getter)
	accounts, err := accountstorage.NewREST(options, noTokens{}, nil, nil, 0, pods, secrets, nodes.Node, nil, nil,
		false, 0)
	if err != nil {
		return err
	}
	kinds["secrets"], kinds["serviceaccounts"], kinds["serviceaccounts/token"] = secrets, accounts, accounts.Token
	return nil
}

// stable are the versions that a real server serves if nothing else is asked for: neither alpha nor beta.
type stable struct{}

func (stable) ResourceEnabled(r schema.GroupVersionResource) bool {
	return !strings.Contains(r.Version, "alpha") && !strings.Contains(r.Version, "beta")
}

func (stable) ResourceExplicitlyEnabled(schema.GroupVersionResource) bool { return false }

func (stable) VersionExplicitlyEnabled(schema.GroupVersion) bool { return false }

func (stable) AnyResourceForGroupEnabled(string) bool { return true }

func makeKinds() (all []reconciletest.Kind, err error) {
	for _, p := range providers() {
		group, err := p.NewRESTStorage(stable{}, storages{})
		if err != nil {
			return nil, fmt.Errorf("group %q: %w", p.GroupName(), err)
		}
		for version, byPath := range group.VersionedResourcesStorageMap {
			gv := schema.GroupVersion{Group: p.GroupName(), Version: version}
			kinds, err := kindsOf(gv, cmp.Or(group.Scheme, legacyscheme.Scheme), byPath)
			if err == nil && group.Scheme == aggregatorscheme.Scheme {
				err = addTypes(kinds)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", gv, err)
			}
			all = append(all, kinds...)
		}
	}
	slices.SortFunc(all, func(a, b reconciletest.Kind) int {
		if a.GroupResource() != b.GroupResource() {
			return strings.Compare(a.GroupResource().String(), b.GroupResource().String())
		}
		return apiversion.CompareKubeAwareVersionStrings(b.Version, a.Version)
	})
	// The store has one version of an object, the newest.
	all = slices.CompactFunc(all, func(a, b reconciletest.Kind) bool { return a.GroupResource() == b.GroupResource() })
	return all, nil
}

// kindsOf returns the kinds of a version, by what the storages of their paths such as "jobs" and "jobs/status" can do.
func kindsOf(gv schema.GroupVersion, scheme *runtime.Scheme, byPath map[string]rest.Storage) (
	all []reconciletest.Kind, err error) {
	byName := map[string]*registry{}
	for path, s := range byPath {
		name, subresource, _ := strings.Cut(path, "/")
		if byName[name] == nil {
			byName[name] = &registry{resource: gv.WithResource(name), scheme: scheme,
				storages: map[string]rest.Storage{}}
		}
		byName[name].storages[subresource] = s
	}
	for _, r := range byName {
		if _, ok := r.storages[""].(rest.StandardStorage); !ok {
			continue // it holds nothing
		}
		k, err := r.describe()
		if err != nil {
			return nil, err
		}
		all = append(all, k)
	}
	return all, nil
}

// describe says of a kind what its storages do.
func (r *registry) describe() (k reconciletest.Kind, err error) {
	main := r.storages[""]
	if r.kind, err = r.kindOf(main); err != nil {
		return k, err
	}
	if r.store, err = storeOf(main); err != nil {
		return k, fmt.Errorf("%s: %w", r.resource, err)
	}
	k.GroupVersionResource, k.Kind, k.Registry = r.resource, r.kind.Kind, r
	k.ClusterScoped = !main.(rest.Scoper).NamespaceScoped()
	k.Singular = main.(rest.SingularNameProvider).GetSingularName()
	if p, ok := main.(rest.ShortNamesProvider); ok {
		k.ShortNames = p.ShortNames()
	}
	if p, ok := main.(rest.CategoriesProvider); ok {
		k.Categories = p.Categories()
	}
	k.ResetFields = map[string]map[fieldpath.APIVersion]fieldpath.Filter{}
	for subresource, s := range r.storages {
		one, err := r.discovered(subresource, s)
		if err != nil {
			return k, err
		}
		if subresource == "" {
			one.SingularName, one.ShortNames, one.Categories = k.Singular, k.ShortNames, k.Categories
		}
		k.Discovery = append(k.Discovery, one)
		if _, ok := s.(rest.Updater); ok && one.Kind == k.Kind {
			k.ResetFields[subresource] = resetFields(s)
		}
	}
	slices.SortFunc(k.Discovery, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	r.dispose(&k)
	return k, nil
}

// dispose says how objects of the kind are deleted, and whether an update creates one.
func (r *registry) dispose(k *reconciletest.Kind) {
	ctx := r.context(reconciletest.Attempt{})
	if o, err := r.scheme.New(r.kind); err == nil {
		o.GetObjectKind().SetGroupVersionKind(r.kind)
		k.Deprecated = deprecation.WarningMessage(o)
	}
	k.CreateOnUpdate = r.store.UpdateStrategy.AllowCreateOnUpdate(ctx)
	k.ReturnDeleted = r.store.ReturnDeletedObject
	if s, ok := r.store.DeleteStrategy.(rest.GarbageCollectionDeleteStrategy); ok {
		switch s.DefaultGarbageCollectionPolicy(ctx) {
		case rest.OrphanDependents:
			k.Orphans = true
		case rest.Unsupported:
			k.OwnsNothing = true
		}
	}
	if s, ok := r.store.DeleteStrategy.(rest.RESTGracefulDeleteStrategy); ok {
		k.Grace = func(o runtime.Object, options *metav1.DeleteOptions) {
			if is, err := r.internal(o); err == nil {
				s.CheckGracefulDelete(ctx, is, options)
			}
		}
	}
}

// kindOf returns the kind of what a storage takes and returns.
func (r *registry) kindOf(s rest.Storage) (schema.GroupVersionKind, error) {
	gv := r.resource.GroupVersion()
	if p, ok := s.(rest.GroupVersionKindProvider); ok {
		return p.GroupVersionKind(gv), nil
	}
	kinds, _, err := r.scheme.ObjectKinds(s.New())
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	for _, k := range kinds {
		if k.Group == gv.Group {
			return gv.WithKind(k.Kind), nil
		}
	}
	return schema.GroupVersionKind{}, fmt.Errorf("no kind of the group %q among %v", gv.Group, kinds)
}

// discovered is what a real server says of a storage, by what it can do.
func (r *registry) discovered(subresource string, s rest.Storage) (metav1.APIResource, error) {
	one := metav1.APIResource{Name: r.resource.Resource, Namespaced: r.storages[""].(rest.Scoper).NamespaceScoped()}
	gvk, err := r.kindOf(s)
	if err != nil {
		return one, err
	}
	one.Kind = gvk.Kind
	if subresource != "" {
		one.Name += "/" + subresource
	}
	if gvk.GroupVersion() != r.resource.GroupVersion() {
		one.Group, one.Version = gvk.Group, gvk.Version
	}
	can := func(verb string, ok bool) {
		if ok {
			one.Verbs = append(one.Verbs, verb)
		}
	}
	_, creates := s.(rest.Creater)
	_, createsNamed := s.(rest.NamedCreater)
	_, deletes := s.(rest.GracefulDeleter)
	_, deletesAll := s.(rest.CollectionDeleter)
	_, gets := s.(rest.Getter)
	_, getsSo := s.(rest.GetterWithOptions)
	_, lists := s.(rest.Lister)
	_, patches := s.(rest.Patcher)
	_, updates := s.(rest.Updater)
	_, watches := s.(rest.Watcher)
	connects := func(method string) bool {
		c, ok := s.(rest.Connecter)
		return ok && slices.Contains(c.ConnectMethods(), method)
	}
	can("create", creates || createsNamed || connects(http.MethodPost))
	can("delete", deletes || connects(http.MethodDelete))
	can("deletecollection", deletesAll)
	can("get", gets || getsSo || connects(http.MethodGet))
	can("list", lists)
	can("patch", patches || connects(http.MethodPatch))
	can("update", updates || connects(http.MethodPut))
	can("watch", watches)
	return one, nil
}

// resetFields returns the fields that an update through a storage cannot change.
func resetFields(s rest.Storage) map[fieldpath.APIVersion]fieldpath.Filter {
	switch s := s.(type) {
	case rest.ResetFieldsStrategy:
		return fieldpath.NewExcludeFilterSetMap(s.GetResetFields())
	case rest.ResetFieldsFilterStrategy:
		return s.GetResetFieldsFilter()
	}
	return nil
}
