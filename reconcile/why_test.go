package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/status"
	"github.com/thermostat-go/thermostat/workqueue"
)

// canary stands in values of objects and in texts of errors. Nothing that can be asked of a Manager may show it.
const canary = "kenya-robin"

// cause is a reason why a key is not reconciled, staged on a server in memory: a process gives the ConfigMap
// default/web a Secret.
type cause struct {
	name string
	// reconcile is what the process does for a key; nil: nothing.
	reconcile func(*staged, context.Context, reconcile.Key) (reconcile.Result, error)
	options   reconcile.Options
	manager   reconcile.ManagerOptions
	config    func(*rest.Config)
	// stage lets it happen, once the process is running; unstarted says that the process is not.
	stage     func(*staged)
	unstarted bool
	unnamed   bool          // the source names no keys
	chance    bool          // the numbers of why depend on chance, and stand there as N
	key       reconcile.Key // zero: web
	why       string
}

// staged is a process with a cause at work.
type staged struct {
	t          *testing.T
	link       *reconciletest.Link
	admin      kubernetes.Interface
	clients    kubernetes.Interface
	controller *reconcile.Controller
	manager    *reconcile.Manager
	stop       context.CancelFunc
	touched    atomic.Bool
	release    chan struct{} // is closed when the test is over
}

var web = reconcile.Key{Namespace: "default", Name: "web"}

func (s *staged) object(name string) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Namespace: "default", Name: name}
}

// createSecret is what the process writes.
func (s *staged) createSecret(ctx context.Context) error {
	_, err := s.clients.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: *s.object("web-key"),
		StringData: map[string]string{canary: canary}}, metav1.CreateOptions{})
	return err
}

// touch names the key.
func (s *staged) touch() {
	s.touched.Store(true)
	_, err := s.admin.CoreV1().ConfigMaps("default").Patch(s.t.Context(), "web", types.MergePatchType,
		fmt.Appendf(nil, `{"data":{"at":%q,"v":%q}}`, time.Now(), canary), metav1.PatchOptions{})
	require.NoError(s.t, err)
}

// refuse answers all requests of a method to a resource with an error.
func (s *staged) refuse(verb, resource string, err error) {
	s.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
		if r.Resource.Resource == resource && strings.Contains(verb, r.Verb) {
			return reconciletest.Refuse(err)
		}
		return nil
	})
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New(canary))
}

func stage(t *testing.T, c cause) *staged {
	server := reconciletest.NewServer(t, reconciletest.Options{})
	s := &staged{t: t, link: server.Link(), release: make(chan struct{})}
	var err error
	s.admin, err = kubernetes.NewForConfig(server.Link().Config())
	require.NoError(t, err)
	_, err = s.admin.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: *s.object("web"),
		Data: map[string]string{"v": canary}}, metav1.CreateOptions{})
	require.NoError(t, err)
	config := s.link.Config()
	if c.config != nil {
		c.config(config)
	}
	config.Wrap(reconcile.TrackWrites)
	s.clients, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	maps, err := informer.NewNamespaced(s.clients.CoreV1().ConfigMaps, []string{"default"},
		informer.Options[*corev1.ConfigMap]{Name: "configmaps", Transform: s.transform})
	require.NoError(t, err)
	secrets, err := informer.New(s.clients.CoreV1().Secrets("default"),
		informer.Options[*corev1.Secret]{Name: "secrets"})
	require.NoError(t, err)
	s.controller, err = reconcile.NewController("keys", reconcile.Func(
		func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
			if c.reconcile == nil {
				return reconcile.Result{}, nil
			}
			return c.reconcile(s, ctx, key)
		}), c.options)
	require.NoError(t, err)
	if c.unnamed {
		reconcile.Watches(s.controller, maps, func(*corev1.ConfigMap) []reconcile.Key { return nil })
	} else {
		reconcile.For(s.controller, maps)
	}
	reconcile.DependsOn(s.controller, secrets)
	c.manager.Controllers = []*reconcile.Controller{s.controller}
	s.manager, err = reconcile.NewManager(c.manager)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	ended := make(chan error, 1)
	run := func() { ended <- s.manager.Run(ctx) }
	if c.unstarted {
		run = func() { ended <- nil }
	}
	if c.name == "the first list is refused" {
		s.refuse("list watch", "secrets", forbidden("secrets"))
	}
	go run()
	t.Cleanup(func() { close(s.release); stop(); <-ended })
	return s
}

// transform fails on a ConfigMap that says so.
func (s *staged) transform(m *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	if m.Data["invalid"] != "" {
		return m, errors.New(canary)
	}
	return m, nil
}

// standby is an Elector that does not lead.
type standby struct{}

func (standby) Run(ctx context.Context, _ func(context.Context) error) error {
	<-ctx.Done()
	return nil
}
func (standby) String() string   { return "kube-system/keys" }
func (standby) Identity() string { return "keys-b" }
func (standby) IsLeader() bool   { return false }
func (standby) Observed() (string, int, time.Time, bool) {
	return "keys-a", 3, time.Now().Add(-2 * time.Second), true
}

// heir is an Elector that leads, after another one that said what it wrote.
type heir struct{ standby }

func (heir) Run(ctx context.Context, lead func(context.Context) error) error { return lead(ctx) }
func (heir) IsLeader() bool                                                  { return true }
func (heir) SetHandover(string)                                              {}
func (heir) Handover() (string, bool) {
	return `[{"informer":"secrets","resourceVersion":"2000"}]`, false
}

// refused is an Elector that may not read its Lease.
type refused struct{ standby }

func (refused) Observed() (string, int, time.Time, bool) { return "", 0, time.Time{}, false }
func (refused) Ready() error                             { return forbidden("leases") }

var causesOfRest = []cause{
	{name: "not started", unstarted: true, stage: func(*staged) {},
		why: "default/web is not reconciled: Manager.Run has not been called."},
	{name: "the first list is refused", stage: func(*staged) { time.Sleep(12 * time.Second) },
		why: "default/web is not reconciled yet: the workers start when all caches are complete, and that of " +
			"secrets has been Denied for 12 s because of 403 Forbidden."},
	{name: "another replica leads", manager: reconcile.ManagerOptions{Elector: standby{}}, stage: func(*staged) {},
		why: "default/web is not reconciled by this process: keys-a holds the Lease kube-system/keys, and " +
			"renewed it 2 s ago; this process leads when the Lease is released or no longer renewed."},
	{name: "nobody is known to lead", manager: reconcile.ManagerOptions{Elector: refused{}}, stage: func(*staged) {},
		why: "default/web is not reconciled by this process: no other process is known to hold the Lease " +
			"kube-system/keys; this process could not lead because of 403 Forbidden."},
	{name: "the last leader's writes are not seen yet", manager: reconcile.ManagerOptions{Elector: heir{}},
		stage: func(*staged) { time.Sleep(4 * time.Second) },
		why: "default/web is not reconciled yet: this process has led for 4 s, and its workers wait for its " +
			"caches to show what the last leader wrote, for 20 s at most."},
	{name: "the Manager stops", reconcile: func(s *staged, _ context.Context, key reconcile.Key) (reconcile.Result,
		error) {
		if key.Name == "slow" {
			<-s.release
		}
		return reconcile.Result{}, nil
	}, stage: func(s *staged) {
		s.controller.Enqueue(reconcile.Key{Name: "slow"})
		synctest.Wait()
		s.stop()
		time.Sleep(2 * time.Second)
	},
		why: "default/web is not reconciled: for 2 s the Manager has been stopping, or has lost its leadership, " +
			"and no new run begins."},
	{name: "the Manager has returned", stage: func(s *staged) { s.stop(); time.Sleep(time.Minute) },
		why: "default/web is not reconciled: Manager.Run returned 1 min ago."},
	{name: "a request is under way",
		reconcile: func(s *staged, ctx context.Context, _ reconcile.Key) (reconcile.Result, error) {
			time.Sleep(time.Second)
			return reconcile.Result{}, s.createSecret(ctx)
		},
		stage: func(s *staged) {
			s.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
				if r.Verb == "create" {
					return reconciletest.Delay(time.Minute, 0)
				}
				return nil
			})
			s.touch()
			time.Sleep(3500 * time.Millisecond)
			s.touch()
		},
		why: "default/web has been in a call of Reconcile for 3.5 s, and waits for the answer to POST secrets " +
			"for 2.5 s; its ctx ends 2 min after it began. It has been named meanwhile, and runs again after " +
			"that."},
	{name: "the server asks for a pause",
		reconcile: func(s *staged, ctx context.Context, _ reconcile.Key) (reconcile.Result, error) {
			return reconcile.Result{}, s.createSecret(ctx)
		},
		stage: func(s *staged) {
			s.refuse("create", "secrets", apierrors.NewTooManyRequests(canary, 20))
			s.touch()
			time.Sleep(3 * time.Second)
		},
		why: "default/web has been in a call of Reconcile for 3 s, and the server answered its last request " +
			"with 429 Too Many Requests: the client waits before it asks again; its ctx ends 2 min after it " +
			"began."},
	{name: "the client has a limit", config: func(c *rest.Config) { c.QPS, c.Burst = 1, 1 },
		reconcile: func(s *staged, ctx context.Context, _ reconcile.Key) (reconcile.Result, error) {
			for range 100 {
				_, _ = s.clients.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
			}
			return reconcile.Result{}, nil
		},
		stage: func(*staged) { time.Sleep(20500 * time.Millisecond) },
		why: "default/web has been in a call of Reconcile for 20.5 s, 20 s of it before its 21 requests: its " +
			"client seems to have a limit of its own; its ctx ends 2 min after it began."},
	{name: "stuck", reconcile: func(s *staged, _ context.Context, _ reconcile.Key) (reconcile.Result, error) {
		<-s.release
		return reconcile.Result{}, nil
	}, stage: func(*staged) { time.Sleep(3 * time.Minute) },
		why: "default/web is out of service: its call of Reconcile began 3 min ago, and has not returned " +
			"although its ctx has ended. It is in HERE. Only its return, or a restart of the process, changes " +
			"that."},
	{name: "the cache is late", reconcile: writeOnce,
		stage: func(s *staged) {
			s.link.DelayWatches("secrets", reconciletest.Never)
			s.touch()
			time.Sleep(time.Millisecond)
			s.touch()
			time.Sleep(3200 * time.Millisecond)
		},
		why: "default/web has waited for 3.2 s: its last run created default/web-key in secrets at version " +
			"1004, and the cache of secrets is at 1002. If nothing comes within 10 s, the informer lists anew."},
	{name: "the watch is refused", reconcile: writeOnce,
		stage: func(s *staged) {
			s.refuse("list watch", "secrets", forbidden("secrets"))
			s.link.CutWatches()
			time.Sleep(5 * time.Second)
			s.touch()
			time.Sleep(time.Millisecond)
			s.touch()
			time.Sleep(3 * time.Second)
		},
		why: "default/web has waited for 3 s: its last run created default/web-key in secrets at version 1004, " +
			"and the cache of secrets is at 1002 and has been Denied for 8 s because of 403 Forbidden. If " +
			"nothing comes within 10 s, the informer lists anew."},
	{name: "a deletion is not seen", reconcile: func(s *staged, ctx context.Context, _ reconcile.Key) (reconcile.Result,
		error) {
		if !s.touched.Load() {
			return reconcile.Result{}, nil
		}
		err := s.clients.CoreV1().Secrets("default").Delete(ctx, "old", metav1.DeleteOptions{})
		return reconcile.Result{}, err
	}, stage: func(s *staged) {
		_, err := s.admin.CoreV1().Secrets("default").Create(s.t.Context(),
			&corev1.Secret{ObjectMeta: *s.object("old")},
			metav1.CreateOptions{})
		require.NoError(s.t, err)
		synctest.Wait()
		s.link.DelayWatches("secrets", reconciletest.Never)
		s.touch()
		time.Sleep(time.Millisecond)
		s.touch()
		time.Sleep(2 * time.Second)
	},
		why: "default/web has waited for 2 s: its last run deleted default/old in secrets, which the cache of " +
			"secrets does not show yet; it is at version 1003. If nothing comes within 10 s, the informer lists anew."},
	{name: "several writes are not seen",
		reconcile: func(s *staged, ctx context.Context, _ reconcile.Key) (reconcile.Result,
			error) {
			if !s.touched.Load() {
				return reconcile.Result{}, nil
			}
			var errs []error
			for _, name := range []string{"one", "two", "three"} {
				_, err := s.clients.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: *s.object(name)},
					metav1.CreateOptions{})
				errs = append(errs, err)
			}
			return reconcile.Result{}, errors.Join(errs...)
		}, stage: func(s *staged) {
			s.link.DelayWatches("secrets", reconciletest.Never)
			s.touch()
			time.Sleep(time.Millisecond)
			s.touch()
			time.Sleep(2 * time.Second)
		},
		why: "default/web has waited for 2 s: its last run created default/one in secrets at version 1004, and " +
			"the cache of secrets is at 1002. It waits for 2 more writes. If nothing comes within 10 s, the " +
			"informer lists anew."},
	{name: "an answer was lost", reconcile: writeOnce,
		stage: func(s *staged) {
			s.link.DelayWatches("secrets", reconciletest.Never)
			s.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
				if r.Verb == "create" {
					return reconciletest.LoseAnswer
				}
				if r.Resource.Resource == "secrets" {
					return reconciletest.Refuse(apierrors.NewInternalError(errors.New(canary)))
				}
				return nil
			})
			s.touch()
			time.Sleep(3 * time.Second)
		},
		why: "default/web has waited for 3 s: the answer to a write of an object in namespace default, in " +
			"secrets, was lost, and the cache of secrets has to be listed anew to show whether it happened; " +
			"it is at version 1002 and has been Stale for 3 s because of 500 InternalError."},
	{name: "others are first", reconcile: func(s *staged, _ context.Context, key reconcile.Key) (reconcile.Result,
		error) {
		if key.Name == "slow" {
			<-s.release
		}
		return reconcile.Result{}, nil
	}, options: reconcile.Options{Priority: important},
		stage: func(s *staged) {
			s.controller.Enqueue(reconcile.Key{Name: "slow"})
			time.Sleep(5 * time.Second)
			for _, name := range []string{"a", "b", "c"} {
				s.controller.Enqueue(reconcile.Key{Name: name})
			}
			s.touch()
			time.Sleep(40 * time.Second)
		},
		why: "default/web has waited for 40 s for a worker; busy workers: 1 of 1, one of them for 45 s; other " +
			"keys that are ready: 3, of a higher priority: 2."},
	{name: "a hot loop", reconcile: func(s *staged, ctx context.Context, _ reconcile.Key) (reconcile.Result, error) {
		time.Sleep(time.Millisecond)
		_, err := s.clients.CoreV1().ConfigMaps("default").Patch(ctx, "web", types.MergePatchType,
			fmt.Appendf(nil, `{"data":{"now":%q}}`, time.Now()), metav1.PatchOptions{})
		return reconcile.Result{}, err
	}, stage: func(*staged) { time.Sleep(20 * time.Second) },
		why: "default/web rests for another 11 s because it is in a hot loop: only its own runs bring it up, " +
			"and they repeat themselves, 25 times so far; what it writes: patch configmaps default/web (data.now); " +
			"what changes: For configmaps default/web: data. " +
			"Another change that names it ends the rest."},
	{name: "another writer undoes it", chance: true, reconcile: func(s *staged, ctx context.Context,
		_ reconcile.Key) (reconcile.Result,
		error) {
		if !s.touched.Load() {
			return reconcile.Result{}, nil
		}
		_, err := s.clients.CoreV1().ConfigMaps("default").Patch(ctx, "web", types.MergePatchType,
			[]byte(`{"data":{"mode":"ours"}}`), metav1.PatchOptions{})
		return reconcile.Result{}, err
	}, stage: func(s *staged) {
		s.touch()
		for range 100 {
			time.Sleep(time.Second)
			_, err := s.admin.CoreV1().ConfigMaps("default").Patch(s.t.Context(), "web", types.MergePatchType,
				[]byte(`{"data":{"mode":"theirs"}}`), metav1.PatchOptions{})
			require.NoError(s.t, err)
		}
	},
		why: "default/web rests for another N because it is in a hot loop: another writer undoes each of its " +
			"writes, N times so far; what it writes: patch configmaps default/web (data.mode); what changes: For " +
			"configmaps default/web: data. Another change that names " +
			"it ends the rest."},
	{name: "it fails", reconcile: func(*staged, context.Context, reconcile.Key) (reconcile.Result, error) {
		return reconcile.Result{}, fmt.Errorf("reading %s: %w", canary, errors.New(canary))
	}, stage: func(*staged) { time.Sleep(time.Minute) },
		why: "default/web has failed 14 times in a row, the last time 19 s ago with an error of type " +
			"*errors.errorString (see the log); it is tried again in 21.9 s, or as soon as something names it."},
	{name: "it fails, and no run is remembered", options: reconcile.Options{History: -1},
		reconcile: func(*staged, context.Context, reconcile.Key) (reconcile.Result, error) {
			return reconcile.Result{}, errors.New(canary)
		}, stage: func(*staged) { time.Sleep(time.Minute) },
		why: "default/web has failed 14 times in a row, the last time longer ago than is remembered; it is tried " +
			"again in 21.9 s, or as soon as something names it."},
	{name: "a right is missing", reconcile: writeOnce, stage: func(s *staged) {
		s.refuse("create", "secrets", forbidden("secrets"))
		s.touch()
		time.Sleep(time.Minute)
	},
		why: "default/web has failed 14 times in a row, the last time 19 s ago with 403 Forbidden, after the " +
			"server answered 403 to create secrets in default: a Role has to allow that, unless an admission " +
			"rule forbids it; it is tried again in 21.9 s, or as soon as something names it."},
	{name: "the server asks the key to wait",
		reconcile: func(*staged, context.Context, reconcile.Key) (reconcile.Result, error) {
			return reconcile.Result{}, apierrors.NewTooManyRequests(canary, 60)
		}, stage: func(s *staged) {
			time.Sleep(10 * time.Second)
			s.touch()
		},
		why: "default/web failed 10 s ago with 429 TooManyRequests, and the server asked for a pause: it is tried " +
			"again " +
			"in 50 s, and no change brings that forward."},
	{name: "it fails for good", reconcile: func(*staged, context.Context, reconcile.Key) (reconcile.Result, error) {
		return reconcile.Result{}, reconcile.Terminal(errors.New(canary))
	}, stage: func(*staged) { time.Sleep(time.Hour) },
		why: "default/web rests until something changes: its last run failed for good 1 h ago with an error of " +
			"type *errors.errorString (see the log)."},
	{name: "it panics", reconcile: func(*staged, context.Context, reconcile.Key) (reconcile.Result, error) {
		panic(canary)
	}, stage: func(*staged) { time.Sleep(time.Minute) },
		why: "default/web has failed 14 times in a row, the last time 19 s ago with a panic of type string in " +
			"HERE; it is tried again in 21.9 s, or as soon as something names it."},
	{name: "the object is invalid", stage: func(s *staged) {
		_, err := s.admin.CoreV1().ConfigMaps("default").Patch(s.t.Context(), "web", types.MergePatchType,
			[]byte(`{"data":{"invalid":"x"}}`), metav1.PatchOptions{})
		require.NoError(s.t, err)
		time.Sleep(time.Minute)
	},
		why: "default/web rests until its object changes or is gone: the object is invalid at version 1003 " +
			"because of an error of type *errors.errorString (see the log). Reconcile is not called for it, and the " +
			"controller has no Options.Invalid."},
	{name: "it comes again", reconcile: func(*staged, context.Context, reconcile.Key) (reconcile.Result, error) {
		return reconcile.Result{RequeueAfter: time.Hour}, nil
	}, stage: func(*staged) { time.Sleep(time.Minute) },
		why: "default/web has been in order for 1 min; the next look is in 59 min, or as soon as something " +
			"names it."},
	{name: "all is well", stage: func(*staged) { time.Sleep(26 * time.Hour) },
		why: "default/web has been in order for 26 h; nothing is due until something names it."},
	{name: "all is well, as far as the cache knows", stage: func(s *staged) {
		s.refuse("list watch", "configmaps", apierrors.NewUnauthorized(canary))
		s.link.CutWatches()
		time.Sleep(5 * time.Minute)
	},
		why: "default/web has been in order for 5 min; nothing is due until something names it. But the cache " +
			"of configmaps has been Denied for 4 min 59 s because of 401 Unauthorized, so it may miss " +
			"changes."},
	{name: "all is well, and the server is silent", stage: func(s *staged) {
		s.link.DelayWatches("configmaps", reconciletest.Never)
		s.touch()
		time.Sleep(46 * time.Minute)
	},
		why: "default/web has been in order for 46 min; nothing is due until something names it. But the server " +
			"has sent nothing for the cache of configmaps for 46 min, not even a bookmark, so the cache may miss " +
			"changes."},
	{name: "paused", stage: func(s *staged) {
		s.controller.Pause(web)
		s.touch()
		time.Sleep(90 * time.Second)
	},
		why: "default/web has been paused for 1 min 30 s, and has been named meanwhile; Resume lets it run."},
	{name: "no such object", key: reconcile.Key{Namespace: "default", Name: "wbe"}, stage: func(*staged) {},
		why: "default/wbe does not exist in the cache of configmaps, and nothing has named it."},
	{name: "a namespace that is not followed", key: reconcile.Key{Namespace: "prod", Name: "web"},
		stage: func(*staged) {},
		why: "prod/web is outside of what informer configmaps follows: namespace prod is not among its " +
			"namespaces, and nothing has named it."},
	{name: "no source names it", unnamed: true, stage: func(*staged) {},
		why: "default/web is not known, and nothing has named it."},
	{name: "the object is gone", stage: func(s *staged) {
		time.Sleep(time.Second)
		require.NoError(s.t, s.admin.CoreV1().ConfigMaps("default").Delete(s.t.Context(), "web",
			metav1.DeleteOptions{}))
		time.Sleep(2 * time.Second)
	},
		why: "default/web does not exist in the cache of configmaps, and has been in order for 2 s; nothing is " +
			"due until something names it."},
}

// important are the keys a and b.
func important(key reconcile.Key) workqueue.Priority {
	if key.Name == "a" || key.Name == "b" {
		return 1
	}
	return 0
}

// writeOnce creates the Secret, once the key has been touched.
func writeOnce(s *staged, ctx context.Context, _ reconcile.Key) (reconcile.Result, error) {
	if !s.touched.Load() {
		return reconcile.Result{}, nil
	}
	err := s.createSecret(ctx)
	if apierrors.IsAlreadyExists(err) {
		err = nil
	}
	return reconcile.Result{}, err
}

// line is a place in this file.
var line = regexp.MustCompile(`reconcile_test\.init\.func[0-9.]+ why_test\.go:[0-9]+`)

var digits = regexp.MustCompile(`(\d+ min \d+|\d+ min|\d[\d.]*)( s\b)?`)

// TestWhy stages each cause, and compares what Why says of it, word for word.
func TestWhy(t *testing.T) {
	for _, c := range causesOfRest {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage(t, c)
				synctest.Wait()
				c.stage(s)
				synctest.Wait()
				key := c.key
				if key == (reconcile.Key{}) {
					key = web
				}
				why := s.controller.Why(key)
				full := s.controller.InspectKey(key)
				require.Equal(t, why, full.Why)
				listed := status.KeySummary{State: full.State}
				for _, k := range s.controller.InspectKeys() {
					if k.Namespace == key.Namespace && k.Name == key.Name {
						listed = k
					}
				}
				require.Equal(t, full.State, listed.State, "the list of the keys says the same")
				if !listed.Since.IsZero() {
					require.Equal(t, full.Since, listed.Since)
				}
				text, err := json.Marshal([]any{s.manager.Inspect(), s.controller.InspectKeys(), full})
				require.NoError(t, err)
				require.NotContains(t, string(text), canary)
				require.Equal(t, strings.Contains(why, "bookmark"), strings.Contains(string(text), `"silent":true`))
				why = line.ReplaceAllString(why, "HERE")
				if c.chance {
					why = digits.ReplaceAllString(why, "N")
				}
				require.Equal(t, c.why, why)
			})
		})
	}
}
