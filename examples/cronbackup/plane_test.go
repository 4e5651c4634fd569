package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	v1 "github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
	"github.com/thermostat-go/thermostat/examples/cronbackup/api/v1alpha1"
	"github.com/thermostat-go/thermostat/examples/cronbackup/cronbackuptest"
	"github.com/thermostat-go/thermostat/examples/cronbackup/deploy"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
	"github.com/thermostat-go/thermostat/reconcile/webhook"
)

// plane is a control plane with the operator's manifests, and a Service of its webhooks.
type plane struct {
	*testing.T
	cluster   *cluster.Cluster
	lifetimes webhook.Lifetimes
	warnings  *warnings
	service   net.Listener
	http2     atomic.Bool // the API server has offered HTTP/2

	mu       sync.Mutex
	replicas []*replica // guarded by mu
}

// warnings are those that the API server sends.
type warnings struct {
	mu  sync.Mutex
	all []string // guarded by mu
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func (w *warnings) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.all, "\n")
}

func newPlane(t *testing.T, l webhook.Lifetimes) *plane {
	p := &plane{T: t, lifetimes: l, warnings: &warnings{},
		cluster: cluster.New(t, cluster.Options{DisableNode: true, Controllers: []string{"serviceaccount-controller"}})}
	var err error
	p.service, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { p.service.Close() })
	go p.lead()
	p.install("namespace.yaml")
	p.install("rbac.yaml")
	go p.holdLease()
	return p
}

// holdLease is another process that leads, so the replicas do nothing but serve. The API server may be away for a
// while.
func (p *plane) holdLease() {
	const duration = 120 * time.Second
	leases := p.cluster.Client().CoordinationV1().Leases("cronbackup")
	for held := time.Now(); ; {
		now := metav1.NowMicro()
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "cronbackup"},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: new("another"),
				LeaseDurationSeconds: new(int32(duration / time.Second)), AcquireTime: &now, RenewTime: &now}}
		is, err := leases.Get(p.Context(), lease.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = leases.Create(p.Context(), lease, metav1.CreateOptions{})
		} else if err == nil {
			lease.ResourceVersion = is.ResourceVersion
			_, err = leases.Update(p.Context(), lease, metav1.UpdateOptions{})
		}
		pause := 10 * time.Second
		if err == nil {
			held = now.Time
		} else {
			pause = time.Second
		}
		if p.Context().Err() == nil && time.Since(held) > duration {
			assert.NoError(p, err)
		}
		select {
		case <-p.Context().Done():
			return
		case <-time.After(pause):
		}
	}
}

// lead leads each connection to a replica that is ready, as a Service does.
func (p *plane) lead() {
	for n := 0; ; n++ {
		conn, err := p.service.Accept()
		if err != nil {
			return
		}
		if to := p.dial(n); to != nil {
			go p.forward(conn, to)
		} else {
			conn.Close()
		}
	}
}

// dial connects to one of the replicas that are ready, in turn; nil: none is. A replica that is taken out of them gets
// no further connection.
func (p *plane) dial(n int) net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	ready := slices.DeleteFunc(slices.Clone(p.replicas), func(r *replica) bool { return !r.ready.Load() })
	if len(ready) == 0 {
		return nil
	}
	to, err := net.Dial("tcp", ready[n%len(ready)].address)
	if err != nil {
		return nil
	}
	return to
}

func (p *plane) forward(conn, to net.Conn) {
	defer conn.Close()
	defer to.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		hello := make([]byte, 16<<10)
		n, _ := conn.Read(hello)
		if bytes.Contains(hello[:n], []byte("\x02h2\x08http/1.1")) {
			p.http2.Store(true)
		}
		_, _ = io.Copy(to, io.MultiReader(bytes.NewReader(hello[:n]), conn))
		_ = to.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(conn, to)
	conn.Close()
	<-ended
}

// replica is one process of the operator.
type replica struct {
	plane   *plane
	address string
	ready   atomic.Bool // as a kubelet has found out
	stop    func()
	ended   chan error
}

// start starts a replica, and a probe of it as that of deploy/deployment.yaml.
func (p *plane) start() *replica {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(p, err)
	r := &replica{plane: p, address: free.Addr().String(), ended: make(chan error, 1)}
	require.NoError(p, free.Close())
	ctx, stop := context.WithCancel(p.Context())
	r.stop = stop
	cfg := p.cluster.Config()
	cfg.Impersonate.UserName = cronbackuptest.Account
	go func() {
		r.ended <- run(ctx, cfg, options{image: "backup:1", address: "0", webhookAddress: r.address,
			webhookHosts: []string{"0.0.0.0"}, lifetimes: p.lifetimes})
	}()
	go r.probe(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replicas = append(p.replicas, r)
	return r
}

func (r *replica) probe(ctx context.Context) {
	// A busy machine may take its time, and is no reason to lead nowhere.
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // as a kubelet does
	for {
		resp, err := client.Get("https://" + r.address + "/readyz")
		if err == nil {
			resp.Body.Close()
		}
		if ctx.Err() != nil {
			return
		}
		r.ready.Store(err == nil && resp.StatusCode == http.StatusOK)
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// end ends a replica as the deletion of its pod does: the Service leads elsewhere first.
func (r *replica) end() {
	r.plane.mu.Lock()
	r.plane.replicas = slices.DeleteFunc(r.plane.replicas, func(o *replica) bool { return o == r })
	r.plane.mu.Unlock()
	time.Sleep(500 * time.Millisecond) // connections that are on their way; preStop in deploy/deployment.yaml
	r.stop()
	require.NoError(r.plane, <-r.ended)
}

// replace starts another replica and ends this one, as a Deployment does.
func (r *replica) replace() *replica {
	next := r.plane.start()
	require.Eventually(r.plane, next.ready.Load, time.Minute, 20*time.Millisecond)
	r.end()
	return next
}

// objects reads a manifest, in which all webhooks are called by the address of the service. The API server uses
// HTTP/1.1 there, as for a Service: 0.0.0.0 is this machine as well, and for 127.0.0.1 it would use HTTP/2.
func (p *plane) objects(name string) []*unstructured.Unstructured {
	_, port, err := net.SplitHostPort(p.service.Addr().String())
	require.NoError(p, err)
	documents, err := fs.ReadFile(deploy.Manifests, name)
	require.NoError(p, err)
	text := regexp.MustCompile(`service: \{.*path: (.*)\}`).ReplaceAllString(string(documents),
		"url: https://0.0.0.0:"+port+"$1")
	objects, err := cluster.Decode([]byte(text))
	require.NoError(p, err)
	return objects
}

func (p *plane) install(name string) {
	require.NoError(p, p.cluster.Apply(p.Context(), p.objects(name)...))
}

// applied applies an object by server-side apply, as install does.
func (p *plane) applied(o *unstructured.Unstructured) error { return p.cluster.Apply(p.Context(), o) }

const plural = "cronbackups.backups.example.com"

func (p *plane) client(gv schema.GroupVersion, resource string) dynamic.NamespaceableResourceInterface {
	cfg := p.cluster.Config()
	cfg.WarningHandler = p.warnings
	client, err := dynamic.NewForConfig(cfg)
	require.NoError(p, err)
	return client.Resource(gv.WithResource(resource))
}

func (p *plane) definitions() dynamic.ResourceInterface {
	return p.client(schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}, "customresourcedefinitions")
}

func (p *plane) backups(gv schema.GroupVersion) dynamic.ResourceInterface {
	return p.client(gv, "cronbackups").Namespace("default")
}

// define installs the CustomResourceDefinition with its conversion, after a change, and waits until it is served.
func (p *plane) define(change func(spec map[string]any)) {
	o := p.objects("backups.example.com_cronbackups.yaml")[0]
	spec := o.Object["spec"].(map[string]any)
	spec["conversion"] = p.objects("conversion.yaml")[0].Object["spec"].(map[string]any)["conversion"]
	change(spec)
	require.NoError(p, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		is, err := p.definitions().Get(p.Context(), plural, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = p.definitions().Create(p.Context(), o, metav1.CreateOptions{})
			return err
		}
		is.Object["spec"] = spec
		_, err = p.definitions().Update(p.Context(), is, metav1.UpdateOptions{})
		return err
	}))
	for _, v := range spec["versions"].([]any) {
		gv := schema.GroupVersion{Group: v1.GroupVersion.Group, Version: v.(map[string]any)["name"].(string)}
		require.Eventually(p, func() bool {
			_, err := p.backups(gv).Get(p.Context(), "none", metav1.GetOptions{})
			return apierrors.IsNotFound(err) && strings.Contains(err.Error(), "none")
		}, time.Minute, 100*time.Millisecond, gv)
	}
}

func asItIs(map[string]any) {}

// onlyVersion takes the other versions out of a definition, and the conversion.
func onlyVersion(name string) func(spec map[string]any) {
	return func(spec map[string]any) {
		delete(spec, "conversion")
		spec["versions"] = slices.DeleteFunc(spec["versions"].([]any), func(v any) bool {
			version := v.(map[string]any)
			version["storage"] = true
			return version["name"] != name
		})
	}
}

func object(gv schema.GroupVersion, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(gv.WithKind("CronBackup"))
	o.SetName(name)
	return o
}

// nameOf is the name of an object of TestMigration. What it has to be as v1 follows from the number.
func nameOf(n int) string { return fmt.Sprintf("backup-%05d", n) }

// store makes n objects of v1alpha1.
func (p *plane) store(n int) {
	backups := p.backups(v1alpha1.GroupVersion)
	each(n, func(i int) {
		o := object(v1alpha1.GroupVersion, nameOf(i), map[string]any{"schedule": "@daily",
			"database": fmt.Sprintf("db-%d", i), "retention": fmt.Sprintf("%dd", 1+i%3650)})
		o.SetAnnotations(map[string]string{v1alpha1.Suspended: strconv.FormatBool(i%2 == 0)})
		_, err := backups.Create(p.Context(), o, metav1.CreateOptions{})
		assert.NoError(p, err)
	})
	require.False(p, p.Failed())
}

// converted says what is wrong with an object that was stored as v1alpha1.
func converted(o *unstructured.Unstructured) error {
	n, err := strconv.Atoi(strings.TrimPrefix(o.GetName(), "backup-"))
	if err != nil {
		return err
	}
	want, suspended := map[string]any{"schedule": "@daily", "targetDatabase": fmt.Sprintf("db-%d", n),
		"retentionDays": int64(1 + n%3650)}, "false"
	if n%2 == 0 {
		want["suspend"], suspended = true, ""
	}
	if o.GroupVersionKind().Version == "v1alpha1" {
		want = map[string]any{"schedule": "@daily", "database": fmt.Sprintf("db-%d", n),
			"retention": fmt.Sprintf("%dd", 1+n%3650)}
		suspended = strconv.FormatBool(n%2 == 0)
	}
	if got, is := o.Object["spec"], o.GetAnnotations()[v1alpha1.Suspended]; !reflect.DeepEqual(got, want) ||
		is != suspended {
		return fmt.Errorf("%s is %v with %q, and not %v with %q", o.GetName(), got, is, want, suspended)
	}
	return nil
}

// each calls f with 0 to n-1, eight at a time.
func each(n int, f func(i int)) {
	var group sync.WaitGroup
	defer group.Wait()
	for worker := range 8 {
		group.Go(func() {
			for i := worker; i < n; i += 8 {
				f(i)
			}
		})
	}
}

// requests are those that read in one way.
type requests struct {
	done, refused, failed atomic.Int64          // refused: by 429
	last                  atomic.Pointer[error] // of the last failure
}

// readers read all objects in both versions, again and again.
type readers struct {
	gets, lists requests
	stop        func()
}

// read starts the readers. Each object is read from the storage, by GET, and all of them by LIST, so each read needs
// conversions.
func (p *plane) read(n int) *readers {
	r := &readers{}
	ctx, cancel := context.WithCancel(p.Context())
	var group sync.WaitGroup
	r.stop = func() { cancel(); group.Wait() }
	versions := []dynamic.ResourceInterface{p.backups(v1.GroupVersion), p.backups(v1alpha1.GroupVersion)}
	again := func(reads *requests, read func(i int, in dynamic.ResourceInterface) error) {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				err := read(i/2, versions[i%2])
				reads.done.Add(1)
				if apierrors.IsTooManyRequests(err) {
					reads.refused.Add(1)
				} else if err != nil {
					reads.failed.Add(1)
					reads.last.Store(&err)
				}
				time.Sleep(10 * time.Millisecond) // the certificates change every few seconds
			}
		})
	}
	for worker := range 4 {
		again(&r.gets, func(i int, in dynamic.ResourceInterface) error {
			o, err := in.Get(p.Context(), nameOf((4*i+worker)%n), metav1.GetOptions{})
			if err != nil {
				return err
			}
			return converted(o)
		})
	}
	again(&r.lists, func(_ int, in dynamic.ResourceInterface) error {
		list, err := in.List(p.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) != n {
			return fmt.Errorf("a list has %d objects, and not %d", len(list.Items), n)
		}
		for _, o := range list.Items {
			err = errors.Join(err, converted(&o))
		}
		return err
	})
	return r
}

// ca is the caBundle of the definition.
func (p *plane) ca() string {
	o, err := p.definitions().Get(p.Context(), plural, metav1.GetOptions{})
	require.NoError(p, err)
	ca, _, err := unstructured.NestedString(o.Object, "spec", "conversion", "webhook", "clientConfig", "caBundle")
	require.NoError(p, err)
	return ca
}

// conversions are how many the API server has asked for, as its metrics have it: with an answer, and without.
func (p *plane) conversions() (answered, failed int) {
	text, err := p.cluster.Client().Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(p.Context())
	require.NoError(p, err)
	count := regexp.MustCompile(`(?m)^apiserver_crd_conversion_webhook_duration_seconds_count\{.*` +
		`succeeded="(true|false)".*\} (\d+)$`)
	for _, found := range count.FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.Atoi(found[2])
		require.NoError(p, err)
		if found[1] == "true" {
			answered += n
		} else {
			failed += n
		}
	}
	return answered, failed
}

// rewrite has the first n objects written anew without a change, so that they are stored in v1.
func (p *plane) rewrite(n int) {
	backups := p.backups(v1.GroupVersion)
	each(n, func(i int) {
		assert.NoError(p, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			o, err := backups.Get(p.Context(), nameOf(i), metav1.GetOptions{})
			if err == nil {
				_, err = backups.Update(p.Context(), o, metav1.UpdateOptions{})
			}
			return err
		}))
	})
	require.False(p, p.Failed())
}

// migrated says in the definition that all objects are stored in v1.
func (p *plane) migrated() {
	_, err := p.definitions().Patch(p.Context(), plural, types.MergePatchType,
		[]byte(`{"status":{"storedVersions":["v1"]}}`), metav1.PatchOptions{}, "status")
	require.NoError(p, err)
}
