package reconcile_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/internal/debts"
	"github.com/thermostat-go/thermostat/reconcile/internal/writes"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/status"
)

// lease is what two electors of one test have between them. Its handover is written by who leads.
type lease struct {
	free chan struct{} // holds a token while nobody leads
	text string        // that is to be left to the next one
	left string        // that was left to who leads
	lost bool          // whoever leads cannot leave any, as after a crash, and has been waited for
}

func (l *lease) SetHandover(text string) {
	if !l.lost {
		l.text = text
	}
}

func (l *lease) Handover() (string, bool) { return l.left, l.lost }

func (l *lease) Run(ctx context.Context, lead func(context.Context) error) error {
	select {
	case <-ctx.Done():
		return nil
	case <-l.free:
	}
	defer func() { l.free <- struct{}{} }()
	l.left, l.text = l.text, ""
	return lead(ctx)
}

type cachedMaps = informer.SharedIndexInformer[*corev1.ConfigMap]

// turn is a lease for a replica that may have it only when its turn has come.
type turn struct {
	*lease
	comes chan struct{}
}

func (w *turn) Run(ctx context.Context, lead func(context.Context) error) error {
	select {
	case <-ctx.Done():
		return nil
	case <-w.comes:
	}
	return w.lease.Run(ctx, lead)
}

// replica runs a controller that reads api, and is called for one key when it comes to lead.
func replica(t *testing.T, l reconcile.Elector, api *mapAPI, r func(context.Context, *cachedMaps)) (stop func() error) {
	return replicaOf(t, l, learning{api}, r)
}

func replicaOf(t *testing.T, l reconcile.Elector, api informer.Client[*corev1.ConfigMapList],
	r func(ctx context.Context, children *cachedMaps)) (stop func() error) {
	children, err := informer.New[*corev1.ConfigMap](api, informer.Options[*corev1.ConfigMap]{Name: "children"})
	require.NoError(t, err)
	c := newController(t, func(ctx context.Context, _ reconcile.Key) (reconcile.Result, error) {
		r(ctx, children)
		return reconcile.Result{}, nil
	}, reconcile.Options{})
	reconcile.DependsOn(c, children)
	c.Enqueue(parent)
	return start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: l})
}

// TestTheNextLeaderWaitsForWhatTheLastOneWrote has a standby whose server lags behind that of the leader when the
// leader leaves.
func TestTheNextLeaderWaitsForWhatTheLastOneWrote(t *testing.T) {
	creates := func(ctx context.Context, api *mapAPI) {
		child := api.Create(configMap("child"))
		reportIn(ctx, writes.NewWrite(writes.Target{Host: "server", Resource: "configmaps"},
			http.MethodPost, 201, writes.Metadata{ObjectMeta: child.ObjectMeta}))
	}
	for name, test := range map[string]struct {
		does  func(ctx context.Context, api *mapAPI) // what the leader does
		heals time.Duration                          // when the server of the next one has caught up
		want  string
		lists int // that the next one has made by then
		crash bool
		since time.Duration // for how long the next one follows its server
	}{
		"it is there already":  {does: creates, want: "1 child after 0s", lists: 1},
		"it lags for a moment": {does: creates, heals: time.Second, want: "1 child after 1s", lists: 1},
		"it lags until it is doubted": {does: creates, heals: debts.DoubtAfter + time.Second, want: "1 child after 11s",
			lists: 1},
		"it lags for ever": {does: creates, heals: time.Hour, want: "0 child after 20s", lists: 1},
		"a deletion that nobody has seen": {does: func(ctx context.Context,
			api *mapAPI) {
			creates(ctx, api)
			deletes(ctx, api)
		}, want: "0 child after 0s", lists: 2},
		"an outcome that nobody knows yet": {does: loses, want: "0 child after 0s", lists: 2},
		"it has written nothing": {does: func(context.Context, *mapAPI) {}, heals: time.Hour,
			want: "0 child after 0s", lists: 1},
		"a crash": {does: creates, crash: true, since: debts.SteadyTime, want: "1 child after 0s",
			lists: 1},
		"a crash, and a young watch": {does: creates, crash: true, since: debts.SteadyTime - 1,
			want: "1 child after 0s", lists: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lease{free: make(chan struct{}, 1), lost: test.crash}
				l.free <- struct{}{}
				ahead, behind := newMapAPI(), newMapAPI() // two servers of one cluster
				stop := replica(t, l, ahead, func(ctx context.Context, _ *cachedMaps) { test.does(ctx, ahead) })
				synctest.Wait()
				behind.BeforeList = func(opts metav1.ListOptions) error {
					if test.heals > 0 {
						return errors.New("no lists, either")
					}
					return nil
				}
				var log journal
				var left time.Time
				var lists int
				replica(t, l, behind, func(_ context.Context, children *cachedMaps) {
					log.note("%d child after %s", children.Len(), time.Since(left))
					lists = children.Health().Lists
				})
				synctest.Wait()
				if test.heals > 0 {
					behind.Hold()
				}
				if name != "it has written nothing" && name != "an outcome that nobody knows yet" {
					behind.Create(configMap("child"))
				}
				if len(ahead.Objects()) == 0 && len(behind.Objects()) > 0 {
					behind.Delete("default", "child")
				}
				synctest.Wait()
				require.Empty(t, l.text)
				time.Sleep(test.since)
				left = time.Now()
				require.NoError(t, stop())
				time.Sleep(test.heals)
				behind.Release()
				time.Sleep(time.Minute)
				require.Equal(t, []string{test.want}, taken(&log), l.text)
				if test.heals == 0 {
					require.Equal(t, test.lists, lists)
				}
			})
		})
	}
}

// deletes leaves at once after a deletion, before its cache has seen it.
func deletes(ctx context.Context, api *mapAPI) {
	child := api.Objects()[0]
	api.Hold()
	api.Delete("default", "child")
	reportIn(ctx, writes.NewWrite(writes.Target{Host: "server", Resource: "configmaps", Name: "child"},
		http.MethodDelete, 200, writes.Metadata{ObjectMeta: child.ObjectMeta}))
}

// loses leaves at once after a write whose answer was lost, before its cache has listed anew.
func loses(ctx context.Context, api *mapAPI) {
	api.Hold()
	ctx.Value(writes.WriterKey{}).(*writes.Writer).Debtor.LostAnswer(klog.FromContext(ctx),
		writes.Target{Host: "server", Resource: "configmaps"})
}

// The log tells of a wait for what the last leader wrote if a cache was doubted, and of none that the end of the
// process cut short.
func TestTheLogTellsOfTheHandoverWhatAnOperatorNeeds(t *testing.T) {
	const behind, seen = "The cache is behind", "The caches have seen"
	for name, test := range map[string]struct {
		heals, ends time.Duration // when the cache has caught up, and when the process ends
		want        []string
	}{
		"nothing was behind":         {ends: time.Minute},
		"it was behind for a moment": {heals: time.Second, ends: time.Minute},
		"it was doubted": {heals: debts.DoubtAfter + time.Second, ends: time.Minute,
			want: []string{behind, seen}},
		"the process ends while it waits": {heals: time.Hour, ends: time.Second},
		"the process ends once it has doubts": {heals: time.Hour, ends: debts.DoubtAfter + time.Second,
			want: []string{behind}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newMapAPI()
				children := newMaps(t, api)
				c := newController(t, noting(&journal{}), reconcile.Options{})
				reconcile.DependsOn(c, children)
				l := &lease{free: make(chan struct{}, 1)}
				var lines journal
				ctx := klog.NewContext(t.Context(), funcr.New(func(_, line string) {
					for _, known := range []string{behind, seen} {
						if strings.Contains(line, known) {
							lines.note("%s", known)
						}
					}
				}, funcr.Options{}))
				stop := startIn(ctx, t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: l})
				synctest.Wait()
				if test.heals > 0 {
					api.Hold()
				}
				child := api.Create(configMap("child"))
				l.text = `[{"informer":"configmaps","resourceVersion":"` + child.ResourceVersion + `"}]`
				l.free <- struct{}{}
				time.AfterFunc(test.heals, api.Release)
				time.Sleep(test.ends)
				synctest.Wait()
				require.NoError(t, stop())
				require.Equal(t, test.want, lines.take())
				api.Release()
			})
		})
	}
}

func TestAHandoverThatCannotBeReadIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{free: make(chan struct{}, 1), text: "by hand"}
		l.free <- struct{}{}
		var log journal
		replica(t, l, newMapAPI(), func(context.Context, *cachedMaps) { log.note("called") })
		require.Equal(t, []string{"called"}, taken(&log))
	})
}

// TestAHandoverSurvivesALeaderThatWritesNothing is a rolling update of three: the first leader writes, the second finds
// nothing to do, and the third, whose server lags, has to wait for what the first wrote.
func TestAHandoverSurvivesALeaderThatWritesNothing(t *testing.T) {
	for _, leads := range []bool{true, false} { // or is told to stop before its caches are there
		t.Run(fmt.Sprintf("and leads: %t", leads), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lease{free: make(chan struct{}, 1)}
				l.free <- struct{}{}
				ahead, second, behind := newMapAPI(), newMapAPI(), newMapAPI()
				begins := make(chan struct{})
				one := replica(t, l, ahead, func(ctx context.Context, _ *cachedMaps) {
					<-begins
					child := ahead.Create(configMap("child"))
					w := writes.NewWrite(writes.Target{Host: "server", Resource: "configmaps"}, http.MethodPost, 201,
						writes.Metadata{ObjectMeta: child.ObjectMeta})
					reportIn(ctx, w)
				})
				synctest.Wait()
				ledTwo := 0
				two := replica(t, &turn{l, closed()}, second, func(context.Context, *cachedMaps) { ledTwo++ })
				var log journal
				var left time.Time
				last := &turn{l, make(chan struct{})}
				replica(t, last, behind, func(_ context.Context, children *cachedMaps) {
					log.note("%d child after %s and %d list", children.Len(), time.Since(left), children.Health().Lists)
				})
				synctest.Wait()
				behind.Hold()
				behind.Create(configMap("child"))
				if !leads {
					second.Hold()
				}
				second.Create(configMap("child"))
				close(begins)
				synctest.Wait()
				require.NoError(t, one())
				synctest.Wait()
				if leads {
					time.Sleep(time.Minute)
					synctest.Wait()
					require.Equal(t, 1, ledTwo)
				} else {
					require.Zero(t, ledTwo)
				}
				left = time.Now()
				require.NoError(t, two())
				close(last.comes)
				time.Sleep(time.Second)
				require.Empty(t, taken(&log), "its cache is behind")
				behind.Release()
				time.Sleep(time.Minute)
				require.Equal(t, []string{"1 child after 1s and 1 list"}, taken(&log), "it knows what to wait for")
			})
		})
	}
}

// TestAnElectorWithoutAHandoverListsAnew: nobody says what the last leader wrote, whichever Elector it is.
func TestAnElectorWithoutAHandoverListsAnew(t *testing.T) {
	l := &lease{free: make(chan struct{}, 1)}
	for name, elector := range map[string]reconcile.Elector{
		"one with Run alone":                        oneTenure{closed()},
		"a wrapper that hides what the Elector has": struct{ reconcile.Elector }{l},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l.free = make(chan struct{}, 1)
				l.free <- struct{}{}
				var log journal
				replica(t, elector, newMapAPI(), func(_ context.Context, children *cachedMaps) {
					log.note("called after %d lists", children.Health().Lists)
				})
				require.Equal(t, []string{"called after 2 lists"}, taken(&log))
			})
		})
	}
}

// oneTenure is an Elector that leads once, and knows of no handover.
type oneTenure struct{ comes chan struct{} }

func (e oneTenure) Run(ctx context.Context, lead func(context.Context) error) error {
	<-e.comes
	return lead(ctx)
}

// TestWithoutAHandoverTheCachesListAnew although they have long followed the server, unless nobody can have written for
// a while.
func TestWithoutAHandoverTheCachesListAnew(t *testing.T) {
	for name, test := range map[string]struct {
		lease lease
		lists int
	}{
		"the Lease was released without a text": {lease{}, 2},
		"with one that cannot be read":          {lease{text: "by hand"}, 2},
		"the Lease was waited for":              {lease{lost: true}, 1},
		"with a text that nothing was written":  {lease{text: "[]"}, 1},
	} {
		for way, client := range map[string]func(api *mapAPI) informer.Client[*corev1.ConfigMapList]{
			"through TrackWrites": func(api *mapAPI) informer.Client[*corev1.ConfigMapList] { return learning{api} },
			"past TrackWrites":    func(api *mapAPI) informer.Client[*corev1.ConfigMapList] { return api },
		} {
			t.Run(name+", "+way, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := test.lease
					l.free = make(chan struct{}, 1)
					lists := 0
					replicaOf(t, &l, client(newMapAPI()), func(_ context.Context, children *cachedMaps) {
						lists = children.Health().Lists
					})
					time.Sleep(time.Minute)
					synctest.Wait()
					require.Zero(t, lists)
					l.free <- struct{}{}
					time.Sleep(time.Minute)
					synctest.Wait()
					require.Equal(t, test.lists, lists)
				})
			})
		}
	}
}

// TestWhatWroteAndDeletedTellIsHandedOver where no client makes its requests through TrackWrites.
func TestWhatWroteAndDeletedTellIsHandedOver(t *testing.T) {
	for name, test := range map[string]struct {
		does func(ctx context.Context, api *mapAPI, children *cachedMaps)
	}{
		"Wrote": {func(ctx context.Context, api *mapAPI, children *cachedMaps) {
			require.NoError(t, reconcile.Wrote(ctx, children, api.Create(configMap("child"))))
		}},
		"Deleted": {func(ctx context.Context, api *mapAPI, children *cachedMaps) {
			child := api.Create(configMap("child"))
			api.Delete("default", "child")
			require.NoError(t, reconcile.Deleted(ctx, children, child))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lease{free: make(chan struct{}, 1)}
				l.free <- struct{}{}
				ahead, behind := newMapAPI(), newMapAPI()
				writes := make(chan struct{})
				stop := replicaOf(t, l, ahead, func(ctx context.Context, children *cachedMaps) {
					<-writes
					ahead.Hold()
					test.does(ctx, ahead, children)
				})
				synctest.Wait()
				var log journal
				var left time.Time
				replicaOf(t, l, behind, func(_ context.Context, children *cachedMaps) {
					log.note("%d child after %s", children.Len(), time.Since(left))
				})
				synctest.Wait()
				behind.Hold()
				behind.Create(configMap("child"))
				if name == "Deleted" {
					behind.Delete("default", "child")
				}
				behind.BeforeList = func(metav1.ListOptions) error {
					if time.Since(left) < time.Second {
						return errors.New("no lists, either")
					}
					return nil
				}
				left = time.Now()
				close(writes)
				synctest.Wait()
				require.NoError(t, stop())
				time.Sleep(time.Second)
				require.Empty(t, taken(&log), l.text)
				behind.Release()
				time.Sleep(time.Minute)
				require.Len(t, taken(&log), 1, "it has waited, and then begun: %s", l.text)
			})
		})
	}
}

// At the end of its patience a new leader hands on what its caches have not seen, or do not have, and that alone.
func TestOnlyWhatWasNotSeenIsHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newController(t, noting(&journal{}), reconcile.Options{})
		broken := newMapAPI()
		for name, api := range map[string]*mapAPI{"well": newMapAPI(), "broken": broken} {
			inf, err := informer.New[*corev1.ConfigMap](api, informer.Options[*corev1.ConfigMap]{Name: name,
				DisableWatchList: true})
			require.NoError(t, err)
			reconcile.DependsOn(c, inf)
		}
		began := time.Now()
		broken.BeforeList = func(metav1.ListOptions) error {
			if time.Since(began) > 0 {
				return errors.New("no")
			}
			return nil
		}
		elsewhere := debts.Legacy{Host: "server", Resource: "pods", ResourceVersion: "7"}
		l := &lease{free: make(chan struct{}, 1)}
		m, err := reconcile.NewManager(reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: l})
		require.NoError(t, err)
		stop := runIn(t.Context(), t, m)
		synctest.Wait()
		time.Sleep(time.Second)
		l.text = handoverOf(t, []debts.Legacy{{Informer: "well", Relist: true}, {Informer: "broken", Relist: true},
			elsewhere})
		l.free <- struct{}{}
		time.Sleep(time.Minute)
		require.Equal(t, status.StageWorking, m.Inspect().Stage)
		require.NoError(t, stop())
		var left []debts.Legacy
		require.NoError(t, json.Unmarshal([]byte(l.text), &left))
		require.Len(t, left, 3)
		require.Contains(t, left, elsewhere)
		require.Contains(t, left, debts.Legacy{Informer: "broken", Relist: true})
		require.Contains(t, left, debts.Legacy{Informer: "well", Listed: "1"}, "it has listed")
	})
}

// The last leader has written an object that an informer does not select. No event tells the next leader's of that, and
// the next bookmark is far away.
func TestAHandoverDoesNotWaitForAnEventOfWhatIsNotSelected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{})
		l := &lease{free: make(chan struct{}, 1)}
		l.free <- struct{}{}
		var log journal
		var left time.Time
		replica := func(r func(context.Context, typedcorev1.SecretInterface) error) (stop func() error) {
			config := server.Link().Config()
			config.Wrap(reconcile.TrackWrites)
			secrets := kubernetes.NewForConfigOrDie(config).CoreV1().Secrets("default")
			some, err := informer.New[*corev1.Secret](secrets, informer.Options[*corev1.Secret]{
				LabelSelector: labels.SelectorFromSet(labels.Set{"role": "x"})})
			require.NoError(t, err)
			c := newController(t, func(ctx context.Context, _ reconcile.Key) (reconcile.Result, error) {
				return reconcile.Result{}, r(ctx, secrets)
			}, reconcile.Options{})
			reconcile.DependsOn(c, some)
			c.Enqueue(parent)
			return start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: l})
		}
		writes := make(chan struct{})
		stop := replica(func(ctx context.Context, secrets typedcorev1.SecretInterface) error {
			<-writes
			plain, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "plain"}},
				metav1.CreateOptions{})
			if err == nil {
				plain.StringData = map[string]string{"a": "b"}
				_, err = secrets.Update(ctx, plain, metav1.UpdateOptions{})
			}
			return err
		})
		synctest.Wait()
		replica(func(context.Context, typedcorev1.SecretInterface) error {
			log.note("called after %s", time.Since(left))
			return nil
		})
		synctest.Wait()
		close(writes)
		synctest.Wait()
		left = time.Now()
		require.NoError(t, stop())
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"called after 1s"}, taken(&log), l.text)
	})
}

// Each object of a Referenced cache has a watch of its own, so most of them lag behind what the last leader wrote to
// one of them, and nothing is wrong with that.
func TestAHandoverOfACacheOfNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{})
		l := &lease{free: make(chan struct{}, 1)}
		l.free <- struct{}{}
		var log journal
		var left time.Time
		site := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "site"}}
		admin := kubernetes.NewForConfigOrDie(server.Config()).CoreV1()
		_, err := admin.ConfigMaps("default").Create(t.Context(), site, metav1.CreateOptions{})
		require.NoError(t, err)
		named := []string{"idle", "tls"}
		replica := func(link *reconciletest.Link, r func(context.Context, typedcorev1.SecretInterface,
			*informer.Referenced[*corev1.Secret]) error) (stop func() error) {
			config := link.Config()
			config.Wrap(reconcile.TrackWrites)
			client := kubernetes.NewForConfigOrDie(config).CoreV1()
			sites, err := informer.New[*corev1.ConfigMap](client.ConfigMaps("default"),
				informer.Options[*corev1.ConfigMap]{})
			require.NoError(t, err)
			secrets, err := informer.NewReferenced[*corev1.Secret](client.Secrets, informer.Options[*corev1.Secret]{})
			require.NoError(t, err)
			c := newController(t, func(ctx context.Context, key reconcile.Key) (reconcile.Result, error) {
				if key.Name != "site" {
					return reconcile.Result{}, nil
				}
				return reconcile.Result{}, r(ctx, client.Secrets("default"), secrets)
			}, reconcile.Options{})
			reconcile.For(c, sites)
			reconcile.References(c, sites, secrets, func(*corev1.ConfigMap) (keys []reconcile.Key) {
				for _, name := range named {
					keys = append(keys, reconcile.Key{Namespace: "default", Name: name})
				}
				return keys
			})
			return start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: l})
		}
		writes := make(chan struct{})
		stop := replica(server.Link(), func(ctx context.Context, secrets typedcorev1.SecretInterface,
			_ *informer.Referenced[*corev1.Secret]) error {
			<-writes
			_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "tls"}},
				metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
		synctest.Wait()
		behind := server.Link()
		replica(behind, func(_ context.Context, _ typedcorev1.SecretInterface,
			secrets *informer.Referenced[*corev1.Secret]) error {
			s, exists, err := secrets.Get(reconcile.Key{Namespace: "default", Name: "tls"})
			log.note("%v %v %v after %s", s != nil, exists, err, time.Since(left))
			return nil
		})
		synctest.Wait()
		behind.DelayWatches("secrets", 20*time.Second)
		close(writes)
		synctest.Wait()
		left = time.Now()
		require.NoError(t, stop())
		time.Sleep(15 * time.Second)
		require.Equal(t, []string{"true true <nil> after 1s"}, taken(&log), l.text)
		require.Contains(t, l.left, `"resource":"secrets"`)
		behind.DelayWatches("secrets", 0)
	})
}

// A function of WhileLeading makes an object if the cache has none. The next leader's must not make another one because
// its watch is late.
func TestWhatIsWrittenWhileLeadingIsHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := reconciletest.NewServer(t, reconciletest.Options{})
		l := &lease{free: make(chan struct{}, 1)}
		l.free <- struct{}{}
		writes, made := make(chan struct{}), make(chan struct{})
		replica := func(link *reconciletest.Link) (stop func() error) {
			config := link.Config()
			config.Wrap(reconcile.TrackWrites)
			secrets := kubernetes.NewForConfigOrDie(config).CoreV1().Secrets("default")
			inf, err := informer.New[*corev1.Secret](secrets, informer.Options[*corev1.Secret]{})
			require.NoError(t, err)
			c := newController(t, noting(&journal{}), reconcile.Options{})
			reconcile.For(c, inf)
			return start(t, reconcile.ManagerOptions{Controllers: []*reconcile.Controller{c}, Elector: l,
				WhileLeading: map[string]func(context.Context) error{"maker": func(ctx context.Context) error {
					<-writes
					defer func() { made <- struct{}{} }()
					if inf.Len() > 0 {
						return nil
					}
					_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "s-"}},
						metav1.CreateOptions{})
					return err
				}}})
		}
		stop := replica(server.Link())
		synctest.Wait()
		second := server.Link()
		replica(second)
		time.Sleep(time.Second)
		second.DelayWatches("secrets", 3*time.Second)
		close(writes)
		<-made
		go func() { _ = stop() }()
		<-made
		all, err := kubernetes.NewForConfigOrDie(server.Link().Config()).CoreV1().Secrets("default").List(t.Context(),
			metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, all.Items, 1)
	})
}

// What was inherited is told to the next leader for as long as what was given up here.
func TestWhatWasInheritedIsForgotten(t *testing.T) {
	for _, lasts := range []time.Duration{time.Minute, 2 * debts.LeftFor} {
		synctest.Test(t, func(t *testing.T) {
			l := &lease{free: make(chan struct{}, 1)}
			l.free <- struct{}{}
			l.text = handoverOf(t, []debts.Legacy{{Host: "server", Resource: "secrets", Namespace: "a",
				ResourceVersion: "7"}})
			stop := replica(t, l, newMapAPI(), func(context.Context, *cachedMaps) {})
			time.Sleep(lasts)
			require.NoError(t, stop())
			require.Equal(t, lasts < debts.LeftFor, strings.Contains(l.text, "secrets"))
		})
	}
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// handoverOf is the text of a handover.
func handoverOf(t *testing.T, left []debts.Legacy) string {
	text, err := json.Marshal(left)
	require.NoError(t, err)
	return string(text)
}
