package reconciletest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/yaml"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// twoMistakes annotates a ConfigMap right after it has made it, and never again; and it drops the errors of updates.
func twoMistakes(ctx context.Context, g *unstructured.Unstructured, c clients) error {
	_, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
	isNew := apierrors.IsNotFound(err)
	if err := right(ctx, g, c); err != nil || !isNew {
		if isNew {
			return err
		}
		return nil
	}
	return annotate(ctx, c, "second", "write")
}

func mistaken() reconciletest.Scenario {
	s := greets(plain(twoMistakes))
	s.Settled, s.Budget = nil, 100*time.Millisecond
	return s
}

func rules(all []*reconciletest.Finding) (names []string) {
	for _, f := range all {
		names = append(names, f.Rule)
	}
	return names
}

// TestGoroutinesMayBeLeft where the rule against them is switched off, as for a program that counts on the end of its
// process.
func TestGoroutinesMayBeLeft(t *testing.T) {
	s := greets(plain(leaves))
	s.Explore, s.Off = reconciletest.Exhaustive{Crashes: 1}, []string{"leaves no goroutine behind"}
	reconciletest.Check(t, s)
}

// TestAStartMayLeaveGoroutines to the end of its process, such as one that tidies up a cache: each start leaves as
// many. The log says so.
func TestAStartMayLeaveGoroutines(t *testing.T) {
	s := greets(func(ctx context.Context, cfg *rest.Config) error {
		for range 2 {
			waitForNothing()
		}
		return plain(right)(ctx, cfg)
	})
	s.Steps, s.Explore = reconciletest.ApplyYAML(greeting("hello")), reconciletest.Exhaustive{Crashes: 1}
	reconciletest.Check(t, s)
}

// TestCheckFindsAGoroutineThatIsLeftWhileOthersEnd: those of the process that are no business of Check may end during a
// run, so that the number of all does not grow.
func TestCheckFindsAGoroutineThatIsLeftWhileOthersEnd(t *testing.T) {
	end, ended := make(chan bool), make(chan bool, 1000)
	var others sync.WaitGroup
	for range cap(ended) {
		others.Go(func() { ended <- <-end })
	}
	defer others.Wait()
	defer close(end)
	s := greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		waitForNothing()
		select {
		case end <- true:
			<-ended
		default:
		}
		return right(ctx, g, c)
	}))
	found := reconciletest.Search(t, s)
	require.NotEmpty(t, found)
	require.Equal(t, "leaves no goroutine behind", found[0].Rule)
}

// TestAProgramBesideMayLeaveGoroutines: it is the test's.
func TestAProgramBesideMayLeaveGoroutines(t *testing.T) {
	s := greets(plain(right))
	s.Beside = []func(context.Context, *rest.Config) error{func(ctx context.Context, cfg *rest.Config) error {
		waitForNothing()
		return plain(leaves)(ctx, cfg)
	}}
	s.Steps, s.Explore = reconciletest.ApplyYAML(greeting("hello")), reconciletest.Exhaustive{Crashes: 1}
	reconciletest.Check(t, s)
}

// TestCheckLetsAProcessThatFailsLeaveGoroutines, as one that is killed while it starts: they end with it. Those of a
// process that runs to the end may not be left, whatever its Run returns.
func TestCheckLetsAProcessThatFailsLeaveGoroutines(t *testing.T) {
	var failsAtItsEnd bool
	s := greets(func(ctx context.Context, cfg *rest.Config) error {
		core, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		started := make(chan struct{})
		go func() { <-started }()
		if _, err := core.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err != nil {
			return fmt.Errorf("it cannot start: %w", err)
		}
		close(started)
		if failsAtItsEnd {
			return errors.Join(plain(leaves)(ctx, cfg), errors.New("it does not end well"))
		}
		return plain(right)(ctx, cfg)
	})
	s.Server.Roles, s.User, s.Budget = nil, "", 100*time.Millisecond
	reconciletest.Check(t, s)
	failsAtItsEnd = true
	require.Equal(t, "leaves no goroutine behind", first(t, s).Rule)
}

// TestCheckGoesOnWhenAGoroutineIsLeft: it is a finding, and so is what is wrong otherwise. That of another
// function is one as well.
func TestCheckGoesOnWhenAGoroutineIsLeft(t *testing.T) {
	s := mistaken()
	s.Run = func(ctx context.Context, cfg *rest.Config) error {
		var group lifecycle.Group // whose function is none that says what is left
		n := starts.Add(1)
		for range min(1+n%2, max(0, 40-n)) { // with as many at each start they would be the process's
			group.Go("ticks", func() {
				for { // nothing ends it
					time.Sleep(time.Hour)
				}
			})
		}
		return plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
			err := twoMistakes(ctx, g, c)
			if apierrors.IsInternalError(err) {
				waitForNothing()
			}
			return err
		})(ctx, cfg)
	}
	all := reconciletest.Search(t, s)
	require.Contains(t, rules(all), "ends alike")
	require.Contains(t, rules(all), "repeats a write that failed")
	left := slices.DeleteFunc(all, func(f *reconciletest.Finding) bool {
		return f.Rule != "leaves no goroutine behind"
	})
	require.Contains(t, left[0].String(), "the search went on")
	require.Regexp(t, `: $`, left[0].Replay)
	require.Greater(t, len(left), 1, "%s", left)
	for _, f := range left[1:] {
		require.Len(t, f.Detail, 2)
		require.Contains(t, f.Detail[1], "reconciletest_test.waitForNothing.func1, started by ")
	}
}

// TestCheckGoesOnWhenARestartUpdates, and does not judge such updates again. What a restart makes is in each end, and
// ends the search.
func TestCheckGoesOnWhenARestartUpdates(t *testing.T) {
	s := greets(startsWith("started"))
	s.Budget, s.Off = 100*time.Millisecond, []string{"ends alike"}
	all := reconciletest.Search(t, s)
	require.Equal(t, []string{"is idempotent"}, rules(all))
	require.Contains(t, all[0].String(), "the search went on, and did not look at such updates any more")
	require.Equal(t, 1, all[0].Count)

	s.Run = func(ctx context.Context, cfg *rest.Config) error {
		name := fmt.Sprintf("at-%d", time.Now().UnixNano())
		return plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
			return makeMap(ctx, c, g, name)
		})(ctx, cfg)
	}
	s.Settled = nil
	require.Contains(t, first(t, s).String(), "no disturbance was tried")
}

// leaves is right, but for a goroutine that it leaves when it has something to make.
func leaves(ctx context.Context, g *unstructured.Unstructured, c clients) error {
	if _, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{}); apierrors.IsNotFound(err) {
		waitForNothing()
	}
	return right(ctx, g, c)
}

// waitForNothing leaves a goroutine behind.
func waitForNothing() {
	var group lifecycle.Group
	group.Go("waits", func() { select {} })
}

// TestCheckLetsAGoroutineWaitForATime that comes when the program has ended, such as that of a certificate which is
// renewed in two months.
func TestCheckLetsAGoroutineWaitForATime(t *testing.T) {
	s := greets(func(ctx context.Context, cfg *rest.Config) error {
		go func() { time.Sleep(60 * 24 * time.Hour) }()
		return plain(right)(ctx, cfg)
	})
	s.Budget = 100 * time.Millisecond
	reconciletest.Check(t, s)
}

// TestAnEventBroadcasterMayBeLeft with nothing switched off, as by many programs that end with their process.
func TestAnEventBroadcasterMayBeLeft(t *testing.T) {
	s := greets(func(ctx context.Context, cfg *rest.Config) error {
		core, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		broadcaster := record.NewBroadcaster()
		broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: core.CoreV1().Events("")})
		return plain(right)(ctx, cfg)
	})
	s.Budget = 100 * time.Millisecond
	reconciletest.Check(t, s)
}

// TestCheckLetsAFilteredWatchBeLeft that nobody reads any more, as the caches of controller-runtime do.
func TestCheckLetsAFilteredWatchBeLeft(t *testing.T) {
	s := greets(func(ctx context.Context, cfg *rest.Config) error {
		events := watch.NewFakeWithChanSize(1, false)
		defer events.Stop()
		watch.Filter(events, func(e watch.Event) (watch.Event, bool) { return e, true })
		events.Add(&corev1.Pod{})
		return plain(right)(ctx, cfg)
	})
	s.Budget = 100 * time.Millisecond
	reconciletest.Check(t, s)
}

// TestAHandlerOfEventsMayNotBeLeft, though an EventBroadcaster has started its goroutine, and an earlier run has left
// such goroutines.
func TestAHandlerOfEventsMayNotBeLeft(t *testing.T) {
	starts := 1
	s := greets(func(ctx context.Context, cfg *rest.Config) error {
		broadcaster := record.NewBroadcaster()
		for range 1 + starts%2 {
			broadcaster.StartEventWatcher(func(*corev1.Event) { select {} })
		}
		starts++ // see above
		broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{}).Event(
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "default"}}, "Normal", "A", "a")
		return plain(right)(ctx, cfg)
	})
	require.Equal(t, "leaves no goroutine behind", first(t, s).Rule)
}

// TestCheckGoesOnAfterAFinding and shows what is alike once.
func TestCheckGoesOnAfterAFinding(t *testing.T) {
	all := reconciletest.Search(t, mistaken())
	require.Contains(t, rules(all), "ends alike")
	require.Contains(t, rules(all), "repeats a write that failed")
	seen, more := map[string]bool{}, 0
	for _, f := range all {
		_, by, _ := strings.Cut(f.Replay, ": ")
		kind, _, _ := strings.Cut(by, "#")
		at := f.Rule + kind
		require.False(t, seen[at] && !strings.Contains(by, ";"), "twice: %s", f)
		seen[at] = true
		more += f.Count - 1
	}
	require.Positive(t, more, "nothing was grouped")

	s := mistaken()
	s.Findings = 1
	require.Len(t, reconciletest.Search(t, s), 1)
	require.Len(t, reconciletest.Alike(all), len(slices.Compact(slices.Sorted(slices.Values(rules(all))))))
}

func TestFindingIsShownAsTwoRunsThatDiffer(t *testing.T) {
	s := mistaken()
	s.Replay = "v1 seed=0 steps=3: crash after create configmaps #1"
	all := reconciletest.Search(t, s)
	require.Len(t, all, 1)
	require.Equal(t, []string{
		"two runs end differently: A, in which nothing goes wrong, and B, which is below",
		"configmaps default/a .metadata.annotations.second: A has write, B has nothing",
	}, all[0].Detail)
	require.Contains(t, all[0].String(), `, by the rule "ends alike":`)
	require.Contains(t, strings.Join(all[0].Timeline, "\n"), "1: list greetings", "a replay shows reads as well")
	require.NotContains(t, all[0].String(), "left out")
}

// TestFindingWithoutADisturbanceSaysThatNoneWasTried and what to do.
func TestFindingWithoutADisturbanceSaysThatNoneWasTried(t *testing.T) {
	s := mistaken()
	s.Run = func(context.Context, *rest.Config) error { return errors.New("no luck today") }
	require.Contains(t, first(t, s).String(), "\nno disturbance was tried: every run would show this. Mend it, or "+
		`switch off the rule with Off: "runs until its ctx ends", and run Check again`)
	require.NotContains(t, first(t, mistaken()).String(), "no disturbance was tried")
}

// TestAnOldListIsSaidToBeOne by a finding that needs it, as not every server has such.
func TestAnOldListIsSaidToBeOne(t *testing.T) {
	for by, hinted := range map[string]bool{
		"back to create configmaps #1": true, "old cache after step 1": true,
		"down in step 1; old cache after step 1": true,
		"down in step 1; cut in step 1":          false,
	} {
		f := &reconciletest.Finding{Replay: "v1 seed=0 steps=1: " + by}
		require.Equal(t, hinted, strings.Contains(f.String(), `Off: "back to", "old cache after"`), by)
	}
}

func TestCheckSwitchesOffByName(t *testing.T) {
	s := mistaken()
	s.Off = []string{"ends alike", "repeats a write that failed", "is idempotent"}
	require.Empty(t, reconciletest.Search(t, s), "with no end to compare")

	s = mistaken()
	s.Off = []string{"touch before update configmaps"}
	for _, f := range reconciletest.Search(t, s) {
		require.NotContains(t, f.Replay, "touch")
	}
	s = greets(plain(right))
	s.Off = []string{"cold start", "late", "crash after create configmaps"}
	report := reconciletest.Report(t, s)
	require.Contains(t, report, "\n  switched off: cold start, late, crash after create configmaps")
	require.NotContains(t, report, ", late 6")
	require.Contains(t, report, "crash before 3, crash after 2, ")

	s.Off = []string{"the weather"}
	require.ErrorContains(t, reconciletest.Validate(s), `Scenario.Off[0] is "the weather"`)
}

func TestMaskDropsObjects(t *testing.T) {
	s := greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		return makeMap(ctx, c, g, "a-"+text)
	}))
	s.Settled = nil
	require.Equal(t, "is reversible", first(t, s).Rule)
	s.Mask = func(o *unstructured.Unstructured) {
		if o.GetKind() == "ConfigMap" {
			o.Object = nil
		}
	}
	require.Empty(t, reconciletest.Search(t, s))
}

// outlived is a scenario for programs that remove a ConfigMap four hours after they have made it.
func outlived(expire func(ctx context.Context, c clients, m *corev1.ConfigMap) error) reconciletest.Scenario {
	s := greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		m, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "done", metav1.GetOptions{})
		_, done := g.GetAnnotations()["done"]
		switch {
		case err == nil && done:
			return expire(ctx, c, m)
		case err != nil && (done || !apierrors.IsNotFound(err)):
			return ignoreGone(err)
		case err != nil:
			if err := makeMap(ctx, c, g, "done"); err != nil {
				return err
			}
		}
		annotations := g.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations["done"] = "yes"
		g.SetAnnotations(annotations)
		_, err = c.greetings.Namespace("default").Update(ctx, g, metav1.UpdateOptions{})
		return err
	}))
	s.Server.Roles, s.User = nil, ""
	s.Steps = append(reconciletest.ApplyYAML(greeting("hello")), reconciletest.Wait(5*time.Hour))
	s.Settled = func(s *reconciletest.Server) error {
		if _, ok := reconciletest.Get[*corev1.ConfigMap](s, "configmaps", "default", "done"); ok {
			return errors.New("it is still there")
		}
		return nil
	}
	return s
}

func TestWaitLetsTimePass(t *testing.T) {
	remove := func(ctx context.Context, c clients) error {
		return ignoreGone(c.core.CoreV1().ConfigMaps("default").Delete(ctx, "done", metav1.DeleteOptions{}))
	}
	sleep := func(ctx context.Context, d time.Duration) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			return nil
		}
	}
	require.Empty(t, reconciletest.Search(t, outlived(func(ctx context.Context, c clients, m *corev1.ConfigMap) error {
		if err := sleep(ctx, time.Until(m.CreationTimestamp.Add(4*time.Hour))); err != nil {
			return err
		}
		return remove(ctx, c)
	})))
	found := first(t, outlived(func(ctx context.Context, c clients, m *corev1.ConfigMap) error {
		if err := sleep(ctx, 4*time.Hour); err != nil { // from now, whenever that is
			return err
		}
		return remove(ctx, c)
	}))
	require.Contains(t, []string{"converges", "ends alike"}, found.Rule, found)
	s := outlived(func(context.Context, clients, *corev1.ConfigMap) error { return nil })
	require.Equal(t, "converges", first(t, s).Rule)
}

// TestCheckLooksForWhatIsStillTerminating by a finalizer of the program. Another one is not its business.
func TestCheckLooksForWhatIsStillTerminating(t *testing.T) {
	released := func(release bool) reconciletest.Scenario {
		s := greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
			switch {
			case g.GetDeletionTimestamp() != nil && (!release || len(g.GetFinalizers()) == 0):
				return nil
			case g.GetDeletionTimestamp() != nil:
				g.SetFinalizers(nil)
			case g.GetFinalizers() == nil:
				g.SetFinalizers([]string{"example.com/greeter"})
			default:
				return nil
			}
			_, err := c.greetings.Namespace("default").Update(ctx, g, metav1.UpdateOptions{})
			return err
		}))
		s.Server.Roles, s.User, s.Settled = nil, "", nil
		s.Steps = append(s.Steps[:1], reconciletest.Delete("greetings.example.com", "default", "a"))
		return s
	}
	found := first(t, released(false))
	require.Equal(t, "lets go of what was deleted", found.Rule, found)
	require.Contains(t, found.Detail[0], "greetings.example.com default/a was deleted at ")
	require.Contains(t, found.Detail[0], "still there with the finalizer example.com/greeter")
	require.Empty(t, reconciletest.Search(t, released(true)))

	kept := strings.Replace(greeting("hello"), "{name: a}", "{name: a, finalizers: [example.com/other]}", 1)
	s := greets(plain(right))
	s.Steps = append(reconciletest.ApplyYAML(kept), reconciletest.Delete("greetings.example.com", "default", "a"))
	s.Server.Roles, s.User, s.Settled = nil, "", nil
	s.Replay = "v1 seed=0 steps=2: "
	require.Empty(t, reconciletest.Search(t, s), "another one's finalizer")
}

// bare is the registry of a kind that nothing is done to.
type bare struct{}

func (bare) Default(runtime.Object)           {}
func (bare) Fields(runtime.Object) fields.Set { return nil }

func (bare) Create(_ reconciletest.Attempt, o runtime.Object) (runtime.Object, error) { return o, nil }

func (bare) Update(_ reconciletest.Attempt, o, _ runtime.Object) (runtime.Object, bool, error) {
	return o, false, nil
}

// protects is about a program that makes a volume, to which a claim is bound for ever, with finalizers.
func protects(finalizers ...string) reconciletest.Scenario {
	gvr := corev1.SchemeGroupVersion.WithResource("persistentvolumes")
	s := greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		_, err := c.core.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "v", Finalizers: finalizers},
			Status:     corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}))
	s.Server.Kinds = []reconciletest.Kind{{Registry: bare{},
		Resource: reconciletest.Resource{GroupVersionResource: gvr, Kind: "PersistentVolume", ClusterScoped: true},
		Discovery: []metav1.APIResource{{Name: gvr.Resource, Kind: "PersistentVolume",
			Verbs: metav1.Verbs{"create", "delete", "get"}}},
		ResetFields: map[string]map[fieldpath.APIVersion]fieldpath.Filter{"": nil}}}
	s.Server.Roles, s.User = nil, ""
	s.Settled = func(s *reconciletest.Server) error {
		v, ok := reconciletest.Get[*corev1.PersistentVolume](s, "persistentvolumes", "", "v")
		if !ok || !slices.Contains(v.Finalizers, "kubernetes.io/pv-protection") {
			return errors.New("the volume is not protected")
		}
		return nil
	}
	s.Steps = s.Steps[:1]
	return s
}

// TestWhatTheServerProtectsIsNotTheProgramsBusiness, when the user deletes it.
func TestWhatTheServerProtectsIsNotTheProgramsBusiness(t *testing.T) {
	s := protects()
	s.Steps = append(s.Steps, reconciletest.Delete("persistentvolumes", "", "v"))
	s.Replay = "v1 seed=0 steps=2: "
	require.Empty(t, reconciletest.Search(t, s))
}

// TestWhatOthersKeepIsNotJudged, although a finalizer of the program keeps it as well.
func TestWhatOthersKeepIsNotJudged(t *testing.T) {
	s := protects("example.com/mine")
	s.Replay = "v1 seed=0 steps=1: delete persistentvolumes in step 1"
	require.Empty(t, reconciletest.Search(t, s))
}

// TestAProgramThatStartsAnewIsNotBlind since the watches of the one before were broken. This one tries every ten
// seconds, until it sees what it has written.
func TestAProgramThatStartsAnewIsNotBlind(t *testing.T) {
	s := reconciletest.Scenario{
		Run: func(ctx context.Context, cfg *rest.Config) error {
			client := kubernetes.NewForConfigOrDie(cfg)
			all := informers.NewSharedInformerFactory(client, 0)
			maps := all.Core().V1().ConfigMaps().Lister().ConfigMaps("default")
			all.Start(ctx.Done())
			defer all.Shutdown()
			all.WaitForCacheSync(ctx.Done())
			for {
				if m, err := maps.Get("a"); err == nil && m.Annotations["seen"] == "" {
					patch := fmt.Sprintf(`{"metadata": {"annotations": {"seen": %q}}}`, time.Now())
					_, _ = client.CoreV1().ConfigMaps("default").Patch(ctx, "a", types.MergePatchType, []byte(patch),
						metav1.PatchOptions{}) // the next round tries again
				}
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(10 * time.Second):
				}
			}
		},
		Steps: reconciletest.ApplyYAML("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n"),
		Mask: func(o *unstructured.Unstructured) { o.SetAnnotations(nil) },
	}
	for _, by := range []string{"unseen step 1; old cache after step 2", "unseen step 1; down in step 2",
		"unseen steps; down in step 2"} {
		s.Replay = "v1 seed=0 steps=2: " + by
		require.Empty(t, reconciletest.Search(t, s))
	}
}

// TestCheckLooksForWhatIsRefusedAgainAndAgain in the end. Until a user mends what was wrong it is no mistake.
func TestCheckLooksForWhatIsRefusedAgainAndAgain(t *testing.T) {
	named := func(texts ...string) reconciletest.Scenario {
		s := greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
			text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
			return makeMap(ctx, c, g, text)
		}))
		s.Settled, s.Steps = nil, nil
		for _, text := range texts {
			s.Steps = append(s.Steps, reconciletest.ApplyYAML(greeting(text))...)
		}
		return s
	}
	found := first(t, named("hello", "Hello_World"))
	require.Equal(t, "is not refused again and again", found.Rule, found)
	require.Contains(t, found.Detail[0], "create configmaps default/: refused with 422 ")
	require.Empty(t, reconciletest.Search(t, named("Hello_World", "hello")))
}

// TestCheckAppliesAStepInAnotherOrder is about a Greeting whose words are in a ConfigMap of the same step.
func TestCheckAppliesAStepInAnotherOrder(t *testing.T) {
	const words = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: words}\ndata: {hello: hallo}\n"
	scenario := func(patient bool) reconciletest.Scenario {
		s := greets(func(ctx context.Context, cfg *rest.Config) error {
			given := map[string]bool{}
			return plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
				_, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "words", metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					given[g.GetName()] = !patient
					return nil
				}
				if err != nil || given[g.GetName()] {
					return err
				}
				return right(ctx, g, c)
			})(ctx, cfg)
		})
		s.Steps = reconciletest.ApplyYAML(words + "---\n" + greeting("hello"))
		return s
	}
	found := first(t, scenario(false))
	require.Contains(t, found.Replay, "other order in step 1")
	require.Contains(t, strings.Join(found.Timeline, "\n"), "apply Greeting a\n")
	require.Empty(t, reconciletest.Search(t, scenario(true)))
}

// TestAnotherOrderIsTriedUntilItWorks: an object before its Namespace is refused, and comes again.
func TestAnotherOrderIsTriedUntilItWorks(t *testing.T) {
	s := greets(plain(right))
	s.Steps = reconciletest.ApplyYAML("apiVersion: v1\nkind: Namespace\nmetadata: {name: other}\n---\n" +
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: words, namespace: other}\n---\n" + greeting("hello"))
	s.Replay = "v1 seed=0 steps=1: other order in step 1"
	require.Empty(t, reconciletest.Search(t, s))
	story := strings.Join(reconciletest.Story(t, s, s.Replay), "\n")
	require.Regexp(t, `(?s)apply Greeting a.*apply Namespace other.*apply ConfigMap words`, story)
}

// TestANamesakeNeedsWhatItIsTheNamesakeOf: of an object that is gone there is none.
func TestANamesakeNeedsWhatItIsTheNamesakeOf(t *testing.T) {
	s := greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		return ignoreGone(c.greetings.Namespace("default").Delete(ctx, g.GetName(), metav1.DeleteOptions{}))
	}))
	s.Server.Roles, s.User = nil, ""
	story := strings.Join(reconciletest.Story(t, s, "v1 seed=0 steps=1: namesake after step 1"), "\n")
	require.NotContains(t, story, "namesake")
}

// TestANamesakeOfWhatOthersKeepIsNotJudged: no program can let go of it.
func TestANamesakeOfWhatOthersKeepIsNotJudged(t *testing.T) {
	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {nodeName: lost, containers: [{name: c, " +
		"image: c}]}}"
	for _, kept := range []string{pod, strings.Replace(greeting("hello"), "{name: a}",
		"{name: a, finalizers: [example.com/other]}", 1)} {
		for _, namesake := range []string{"namesake after", "namesake at once after"} {
			s := greets(plain(right))
			s.Server.Roles, s.User, s.Settled, s.Steps = nil, "", nil, reconciletest.ApplyYAML(kept)
			s.Replay = "v1 seed=0 steps=1: " + namesake + " step 1"
			require.Empty(t, reconciletest.Search(t, s))
			require.Contains(t, reconciletest.Traces(t, s, s.Replay, 1)[0], namesake)
		}
	}
}

// TestAUserWaitsForWhatIsStillThere before a manifest is applied again: a program may look every five minutes only, and
// its write may fail once. Applied to an object that is being deleted, the manifest would be gone with it.
func TestAUserWaitsForWhatIsStillThere(t *testing.T) {
	const finalizer = "example.com/swept"
	s := greets(func(ctx context.Context, cfg *rest.Config) error {
		all := dynamic.NewForConfigOrDie(cfg).Resource(greetings).Namespace("default")
		for ctx.Err() == nil {
			g, err := all.Get(ctx, "a", metav1.GetOptions{})
			if err == nil && slices.Contains(g.GetFinalizers(), finalizer) {
				g.SetFinalizers(nil)
				_, _ = all.Update(ctx, g, metav1.UpdateOptions{}) // it looks again
			}
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Minute):
			}
		}
		return nil
	})
	swept := strings.Replace(greeting("hello"), "{name: a}", "{name: a, finalizers: ["+finalizer+"]}", 1)
	s.Steps = append(reconciletest.ApplyYAML(swept), reconciletest.Wait(6*time.Minute))
	s.Server.Roles, s.User = nil, ""
	s.Settled = func(s *reconciletest.Server) error {
		_, ok := reconciletest.Get[*unstructured.Unstructured](s, "greetings.example.com", "default", "a")
		if !ok {
			return errors.New("the Greeting is gone")
		}
		return nil
	}
	s.Replay = "v1 seed=0 steps=2: namesake at once after step 1; 504 to update greetings #1"
	require.Empty(t, reconciletest.Search(t, s))
}

// TestAUserWaitsForAKindThatTheProgramMakes, and then the program is down again.
func TestAUserWaitsForAKindThatTheProgramMakes(t *testing.T) {
	definition, err := os.ReadFile("testdata/config/crd.yaml")
	require.NoError(t, err)
	s := greets(func(ctx context.Context, cfg *rest.Config) error {
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(definition, crd); err != nil {
			return err
		}
		definitions := dynamic.NewForConfigOrDie(cfg).Resource(schema.GroupVersionResource{
			Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
		if _, err := definitions.Create(ctx, crd, metav1.CreateOptions{}); ignoreThere(err) != nil {
			return err
		}
		return plain(right)(ctx, cfg)
	})
	s.Server.CRDs, s.Server.Roles, s.User = nil, nil, ""
	trace := reconciletest.Traces(t, s, "v1 seed=0 steps=3: cold start", 1)[0]
	require.Regexp(t, `(?s)step 1.*tries again later: the server has no kind.*start of incarnation 1.*`+
		`CRASH of incarnation 1.*step 2.*start of incarnation 2`, trace)
	s.Replay = "v1 seed=0 steps=3: cold start"
	require.Empty(t, reconciletest.Search(t, s))
}

// TestWhatTheServerRefusesAfterANamesakeIsNotJudged, such as to enlarge a claim that was bound before it was made anew.
func TestWhatTheServerRefusesAfterANamesakeIsNotJudged(t *testing.T) {
	const given = "{apiVersion: v1, kind: ConfigMap, metadata: {name: given, namespace: default}, data: {size: small}}"
	type bindings func(all typedcorev1.ConfigMapInterface, m *corev1.ConfigMap) error
	onGiven := func(name string, do bindings) reconciletest.Step {
		return reconciletest.StepFunc(name, func(ctx context.Context, cfg *rest.Config) error {
			all := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("default")
			m, err := all.Get(ctx, "given", metav1.GetOptions{})
			if err != nil {
				return err
			}
			return do(all, m)
		})
	}
	bind := onGiven("bind", func(all typedcorev1.ConfigMapInterface, m *corev1.ConfigMap) error {
		m.Annotations = map[string]string{"bound": "yes"}
		_, err := all.Update(t.Context(), m, metav1.UpdateOptions{})
		return err
	})
	refused := error(apierrors.NewForbidden(corev1.Resource("configmaps"), "given", errors.New("it is not bound")))
	grow := onGiven("grow", func(_ typedcorev1.ConfigMapInterface, m *corev1.ConfigMap) error {
		if m.Annotations["bound"] == "" {
			return refused
		}
		return nil
	})
	s := greets(plain(right))
	s.Server.Roles, s.User, s.Settled = nil, "", nil
	s.Steps = append(reconciletest.ApplyYAML(given), bind, reconciletest.ApplyYAML(given)[0], grow)
	s.Replay = "v1 seed=0 steps=4: namesake after step 3"
	require.Empty(t, reconciletest.Search(t, s))
	require.Contains(t, reconciletest.Traces(t, s, s.Replay, 1)[0], "step 4")
	for _, refused = range []error{errors.New("the program has not bound it"), apierrors.NewForbidden(
		corev1.Resource("configmaps"), "given", errors.New(
			`admission webhook "judge.example.com" denied the request: it knows another one`))} {
		require.Equal(t, "the step works", first(t, s).Rule)
	}
}

// slowToRepeat drops no write that failed, and repeats it after five minutes: a queue that has failed often waits long.
func slowToRepeat(ctx context.Context, g *unstructured.Unstructured, c clients) error {
	err := right(ctx, g, c)
	if err == nil || ctx.Err() != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Minute):
	}
	return err
}

// TestARepeatedWriteIsWaitedFor is about a program that is settled before it has repeated what failed.
func TestARepeatedWriteIsWaitedFor(t *testing.T) {
	s := greets(plain(slowToRepeat))
	s.Settled = func(*reconciletest.Server) error { return nil }
	s.Replay = "v1 seed=0 steps=3: 500 to update configmaps #2"
	require.Empty(t, reconciletest.Search(t, s))
}
