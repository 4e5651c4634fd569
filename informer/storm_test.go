package informer

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
)

// stormScript plays a script, coded in bytes, of changes, faults and waits to an informer with seven kinds of handler.
// Then the faults stop, and within a bound that the waits of the informer give, everybody must know what the server
// knows (I3), with histories that are in order (I1), never ahead of the cache (I2) and, unless the cluster was
// restored, never going back (I5); at each version that the store has reached it held what the server did (I4), and the
// log was discreet (I22) and calm (I23).
func stormScript(t *testing.T, script []byte) {
	bubble(t, Options[*corev1.Pod]{PageSize: 2, DisableWatchList: len(script)%2 == 1},
		func(t *testing.T, p *proxy, inf *informerOfPods, told *history) {
			add := func(h Handler[*corev1.Pod], opts HandlerOptions) {
				_, err := inf.AddHandler(h, opts)
				require.NoError(t, err)
			}
			handlers := map[string]*history{}
			for _, name := range []string{"inline", "slow", "panics", "late", "resync", "every"} {
				handlers[name] = &history{inf: inf, rounds: rounds{}}
			}
			calls := 0
			var (
				server   changes
				readings []reading
			)
			add(handlers["inline"].handle, HandlerOptions{Inline: true, Reached: func(_, resourceVersion string) {
				if inf.Health().Rewinds == 0 {
					readings = append(readings, read(inf, resourceVersion))
				}
			}})
			add(func(e Event[*corev1.Pod]) { handlers["slow"].handle(e); time.Sleep(3 * time.Second) },
				HandlerOptions{})
			add(func(e Event[*corev1.Pod]) {
				if calls++; calls%3 == 0 {
					panic("now")
				}
				handlers["panics"].handle(e)
			}, HandlerOptions{})
			add(handlers["resync"].handle, HandlerOptions{Resync: time.Minute})
			add(handlers["every"].handle, HandlerOptions{Every: true})
			happened := func(o *corev1.Pod, exists bool) {
				server = append(server, changes{{version(o.ResourceVersion), KeyOf(o), exists}}...)
			}
			create := func(name string) {
				o := pod(name)
				o.Annotations = map[string]string{"canary": "swordfish"}
				happened(p.Create(o), true)
			}
			for _, o := range p.Objects() {
				happened(o, true)
			}
			log := &lines{}
			runOn(t, inf, klog.New(log))

			restore := p.Snapshot()
			faults := []error{nil, errBusy, errExpired, errForbidden, errNoSuch, errors.New("connection refused")}
			fault := func(err error) func() {
				return func() {
					p.onList = func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
						if err != nil {
							return nil, err
						}
						return p.podAPI.List(ctx, opts)
					}
					p.onWatch = func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
						if err != nil {
							return nil, err
						}
						return p.podAPI.Watch(ctx, opts)
					}
				}
			}
			restored, snapped := false, false
			exists := func(name string) bool {
				for _, o := range p.Objects() {
					if o.Name == name {
						return true
					}
				}
				return false
			}
			for i, op := range script {
				name := string(rune('a' + op%4))
				switch kind := op / 4; {
				case kind < 16 && !exists(name):
					create(name)
				case kind < 12:
					happened(p.Update("default", name, func(o *corev1.Pod) {
						o.Labels = nil
						if kind%2 == 0 {
							o.Labels = map[string]string{"wanted": ""}
						}
					}), true)
				case kind < 16:
					happened(p.Delete("default", name), false)
				case kind < 20:
					p.Cut()
				case kind < 24:
					p.Compact()
				case kind < 28:
					p.set(fault(faults[int(op)%len(faults)]))
				case kind < 30:
					p.set(func() { p.onWatch = silence })
				case kind < 32:
					p.Bookmark()
				case kind < 34 && exists(name): // a repeated event
					for _, o := range p.Objects() {
						if o.Name == name {
							p.Inject(watch.Event{Type: watch.Modified, Object: o})
						}
					}
				case kind < 36:
					p.Inject(watch.Event{Type: "SURPRISE", Object: pod(name)})
				case kind == 36 && !snapped:
					restore, snapped = p.Snapshot(), true
				case kind == 37 && snapped && !restored && i%2 == 0:
					// A cluster that has gone back and then beyond where it was, unseen, cannot be told from one that
					// has not. So let it be seen.
					p.set(func() { p.onList, p.onWatch = nil, nil })
					time.Sleep(20 * time.Minute)
					// or a watch may be about to end when it was asked to, with the restore, and nobody asks what came
					// after that
					p.Cut()
					time.Sleep(time.Minute)
					for range 5 {
						p.Bookmark()
					}
					synctest.Wait()
					restore()
					restored = true
					time.Sleep(time.Minute)
					p.Bookmark()
					time.Sleep(time.Minute)
				default:
					time.Sleep(time.Duration(op) * 50 * time.Millisecond)
				}
				if i == len(script)/2 {
					add(handlers["late"].handle, HandlerOptions{})
				}
			}
			if len(script) == 0 {
				add(handlers["late"].handle, HandlerOptions{})
			}

			// The longest of its waits: a silent watch of ten minutes, then a wait of 30 s, then what is left of a
			// panic's five minutes.
			p.set(func() { p.onList, p.onWatch = nil, nil })
			create("healed" + strconv.Itoa(len(script)))
			time.Sleep(20 * time.Minute)
			p.Bookmark()
			time.Sleep(20 * time.Minute)
			synctest.Wait()
			handlers["told"] = told
			for _, o := range p.Objects() {
				held, ok := inf.Get(KeyOf(o))
				require.True(t, ok, "%s is missing", KeyOf(o))
				require.Equal(t, o.ResourceVersion, held.ResourceVersion, "%s", KeyOf(o))
			}
			require.Equal(t, len(p.Objects()), inf.Len())
			require.Equal(t, Live, inf.Health().State)
			require.Empty(t, theListWatch(inf).reflector.quarantine.patients)
			if !restored {
				require.Zero(t, inf.Health().Rewinds)
				require.NotEmpty(t, readings)
				require.NoError(t, server.consistent(3, readings))
			}
			require.NotEmpty(t, log.all())
			require.NoError(t, calmly(log.all()))
			require.NoError(t, discreetly("swordfish", log.all(), inf.Health()))
			for name, h := range handlers {
				require.NoError(t, h.err(), name)
				require.NoError(t, h.folded(p.Objects()), name)
			}
		})
}

func TestEverybodyKnowsTheTruthAfterAStorm(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 10))
		script := make([]byte, 100+seed%2)
		for i := range script {
			script[i] = byte(random.IntN(256))
		}
		t.Logf("seed %d", seed)
		stormScript(t, script)
	}
}

func FuzzStorm(f *testing.F) {
	f.Add([]byte{0, 1, 64, 80, 200, 104, 200})
	f.Fuzz(stormScript)
}
