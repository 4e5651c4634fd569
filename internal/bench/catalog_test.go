package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/informer/clientgo"
)

// Many Secrets in the cluster, of which a program's objects name a few; and many pods, of which a program reads the
// metadata.
const (
	manySecrets, namedSecrets = 33_000, 200
	metadataPods              = 88_000
	reads                     = 5 // of each named Secret: as many reconciles
)

// BenchmarkNamedSecrets reads each named Secret a few times, as many reconciles do, with a cache of only what is named,
// and in the three ways that controller-runtime has.
func BenchmarkNamedSecrets(b *testing.B) {
	b.Run("thermostat", func(b *testing.B) {
		catalog(b, "secrets", manySecrets, func(c *rest.Config) any {
			resource, err := informer.NewResource[*corev1.Secret](c, corev1.SchemeGroupVersion.WithResource("secrets"),
				informer.ResourceOptions{})
			must(b, err)
			secrets, err := informer.NewReferenced(resource.In, informer.Options[*corev1.Secret]{})
			must(b, err)
			secrets.NamedBy(func(informer.Key) bool { return true })
			background(b, secrets.Run)
			for range reads {
				for i := range namedSecrets {
					key := secretKey(i)
					secrets.Recheck(key)
					for _, _, err = secrets.Get(key); err != nil; _, _, err = secrets.Get(key) {
						time.Sleep(time.Millisecond) // a controller parks the key
					}
				}
			}
			return secrets
		})
	})
	for name, set := range map[string]func(*client.CacheOptions) client.Object{
		controllerRuntime: func(*client.CacheOptions) client.Object { return &corev1.Secret{} },
		controllerRuntime + ",DisableFor": func(o *client.CacheOptions) client.Object {
			o.DisableFor = secretOnly
			return nil
		},
		controllerRuntime + ",OnlyMetadata": func(o *client.CacheOptions) client.Object {
			o.DisableFor = secretOnly
			m := &metav1.PartialObjectMetadata{}
			m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
			return m
		},
	} {
		b.Run(name, func(b *testing.B) {
			catalog(b, "secrets", manySecrets, func(c *rest.Config) any {
				var o client.CacheOptions
				watched := set(&o)
				m := catalogManager(b, c, o, watched)
				for range reads {
					for i := range namedSecrets {
						key := secretKey(i)
						must(b, m.GetClient().Get(b.Context(), key, &corev1.Secret{}))
					}
				}
				return m
			})
		})
	}
}

var secretOnly = []client.Object{&corev1.Secret{}}

// BenchmarkPodMetadata caches the metadata of pods, or the pods.
func BenchmarkPodMetadata(b *testing.B) {
	onlyMetadata := func() client.Object {
		m := &metav1.PartialObjectMetadata{}
		m.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		return m
	}
	b.Run("thermostat", func(b *testing.B) {
		catalog(b, "pods", metadataPods, func(c *rest.Config) any {
			resource, err := informer.NewResource[*metav1.PartialObjectMetadata](c,
				corev1.SchemeGroupVersion.WithResource("pods"), informer.ResourceOptions{})
			must(b, err)
			inf, err := informer.New(resource, informer.Options[*metav1.PartialObjectMetadata]{})
			must(b, err)
			background(b, inf.Run)
			must(b, inf.WaitForSync(b.Context()))
			return inf
		})
	})
	b.Run("thermostat,wired", func(b *testing.B) {
		catalog(b, "pods", metadataPods, func(c *rest.Config) any {
			return catalogManager(b, clientgo.Wire(c), client.CacheOptions{}, onlyMetadata(),
				cache.Options{NewInformer: clientgo.NewSharedIndexInformer})
		})
	})
	b.Run(controllerRuntime, func(b *testing.B) {
		catalog(b, "pods", metadataPods, func(c *rest.Config) any {
			return catalogManager(b, c, client.CacheOptions{}, &corev1.Pod{})
		})
	})
	b.Run(controllerRuntime+",OnlyMetadata", func(b *testing.B) {
		catalog(b, "pods", metadataPods, func(c *rest.Config) any {
			return catalogManager(b, c, client.CacheOptions{}, onlyMetadata())
		})
	})
}

// catalogManager is a manager that runs, and holds what is watched unless that is nil.
func catalogManager(b *testing.B, c *rest.Config, o client.CacheOptions, watched client.Object,
	caches ...cache.Options) ctrl.Manager {
	ctrl.SetLogger(logr.Discard())
	options := ctrl.Options{
		Client: client.Options{Cache: &o}, Metrics: metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			m := meta.NewDefaultRESTMapper(nil)
			m.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
			m.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
			return m, nil
		},
	}
	for _, c := range caches {
		options.Cache = c
	}
	m, err := ctrl.NewManager(c, options)
	must(b, err)
	background(b, m.Start)
	if watched != nil {
		inf, err := m.GetCache().GetInformer(b.Context(), watched)
		must(b, err)
		for !inf.HasSynced() {
			time.Sleep(time.Millisecond)
		}
	}
	return m
}

// catalog measures what a program holds and asks for.
func catalog(b *testing.B, resource string, objects int, run func(*rest.Config) any) {
	c := startServer(b, serverOptions{Catalog: resource, Pods: objects})
	before := heap()
	b.ResetTimer()
	kept := run(c)
	b.StopTimer()
	b.ReportMetric(peakRSS(b), "peak-B/op")
	b.ReportMetric(float64(heap()-before), "heap-B/op")
	answer, err := http.Get(c.Host + "/requests")
	must(b, err)
	defer answer.Body.Close()
	requests, err := io.ReadAll(answer.Body)
	must(b, err)
	n, err := strconv.ParseFloat(string(requests), 64)
	must(b, err)
	b.ReportMetric(n, "requests/op")
	keep(kept)
}

func secretKey(i int) informer.Key {
	return informer.Key{Namespace: fmt.Sprint("team-", i%namespaces), Name: fmt.Sprintf("release-%05d", i)}
}

// realisticSecret has 4 kB, as a Secret of a Helm release or of a certificate.
func realisticSecret(i int) *corev1.Secret {
	data := make([]byte, 2000)
	for j := range data {
		data[j] = byte(i*31 + j*j)
	}
	key := secretKey(i)
	return &corev1.Secret{Type: corev1.SecretTypeOpaque, Data: map[string][]byte{"tls.crt": data, "tls.key": data},
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, ResourceVersion: strconv.Itoa(i + 1),
			UID: ownerUID(i), Labels: map[string]string{"owner": "helm", "name": key.Name}}}
}

// serveCatalog is a server of objects that do not change: whole or only their metadata, all or one.
func serveCatalog(o serverOptions) {
	var requests atomic.Int64
	kind := map[string]string{"secrets": "Secret", "pods": "Pod"}[o.Catalog]
	type entry struct{ whole, metadata []byte }
	entries, byPath := make([]entry, o.Pods), map[string]int{}
	for i := range entries {
		var object client.Object = realisticPod(i, i+1)
		if kind == "Secret" {
			object = realisticSecret(i)
		}
		whole, err := object.(interface{ Marshal() ([]byte, error) }).Marshal()
		try(err)
		m := meta.AsPartialObjectMetadata(object.(metav1.Object))
		metadata, err := m.Marshal()
		try(err)
		entries[i] = entry{whole, metadata}
		byPath[object.GetNamespace()+"/"+object.GetName()] = i
	}
	version := strconv.Itoa(o.Pods + 1)
	list := func(w http.ResponseWriter, r *http.Request, one string) {
		w.Header().Set("Content-Type", k8sruntime.ContentTypeProtobuf)
		partial := strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
		items := entries
		if one != "" {
			items = nil
			if i, exists := byPath[one]; exists {
				items = entries[i : i+1]
			}
		}
		listMeta := metav1.ListMeta{ResourceVersion: version}
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		items = items[from:]
		if limit, _ := strconv.Atoi(r.URL.Query().Get("limit")); limit > 0 && limit < len(items) &&
			r.URL.Query().Get("resourceVersion") != "0" {
			items, listMeta.Continue = items[:limit], strconv.Itoa(from+limit)
		}
		encoded, err := listMeta.Marshal()
		try(err)
		body := field(nil, 1, encoded)
		for _, e := range items {
			if partial {
				body = field(body, 2, e.metadata)
			} else {
				body = field(body, 2, e.whole)
			}
		}
		write := func(version, kind string) {
			head := append([]byte("k8s\x00"), field(nil, 1, field(field(nil, 1, []byte(version)), 2, []byte(kind)))...)
			w.Write(protowire.AppendBytes(protowire.AppendTag(head, 2, protowire.BytesType), body))
		}
		if partial {
			write("meta.k8s.io/v1", "PartialObjectMetadataList")
		} else {
			write("v1", kind+"List")
		}
	}
	handle := func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/") // api v1 [namespaces NS] RESOURCE [NAME]
		namespace, name := "", ""
		if len(parts) > 3 {
			namespace = parts[3]
		}
		if len(parts) == 6 {
			i, exists := byPath[namespace+"/"+parts[5]]
			if !exists {
				refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
				return
			}
			w.Header().Set("Content-Type", k8sruntime.ContentTypeProtobuf)
			w.Write(append(envelopeOf(kind, len(entries[i].whole)), entries[i].whole...))
			return
		}
		if s, found := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="); found {
			name = namespace + "/" + s
		}
		switch {
		case r.URL.Query().Get("watch") == "":
			list(w, r, name)
		case r.URL.Query().Get("sendInitialEvents") == "true":
			refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
		default: // nothing changes
			w.Header().Set("Content-Type", k8sruntime.ContentTypeProtobuf+";stream=watch")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	try(err)
	http.HandleFunc("/api/v1/", handle)
	http.HandleFunc("/requests", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, requests.Load()) })
	go func() { try(http.Serve(l, nil)) }()
	fmt.Println(l.Addr())
	io.Copy(io.Discard, os.Stdin)
}
