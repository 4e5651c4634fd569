package reconciletest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

func greeting(text string) string {
	return "apiVersion: example.com/v1\nkind: Greeting\nmetadata: {name: a}\nspec: {text: " + text + "}\n"
}

func runGreeter(ctx context.Context, cfg *rest.Config) error {
	m, err := newGreeter(cfg)
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

// greets is a scenario for programs that give each Greeting a ConfigMap with its text.
func greets(run func(context.Context, *rest.Config) error) reconciletest.Scenario {
	return reconciletest.Scenario{
		Run: run,
		Server: reconciletest.Options{
			CRDs:  []string{"testdata/config/crd.yaml"},
			Roles: []string{"testdata/config/rbac.yaml"},
		},
		User:  reconciletest.ServiceAccount("default", "greeter"),
		Steps: reconciletest.ApplyYAML(greeting("hello"), greeting("bye"), greeting("hello")),
		Settled: func(s *reconciletest.Server) error {
			m, ok := reconciletest.Get[*corev1.ConfigMap](s, "configmaps", "default", "a")
			if !ok || !strings.HasPrefix(m.Data["text"], "hello") {
				return errors.New("the ConfigMap is missing or old")
			}
			return nil
		},
		Budget: 300 * time.Millisecond,
	}
}

// startsWith is a program that writes the time into an annotation when it starts.
func startsWith(annotation string) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		first := true
		return plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
			if err := right(ctx, g, c); err != nil || !first {
				return err
			}
			first = false
			return retry.RetryOnConflict(retry.DefaultRetry, func() error {
				return annotate(ctx, c, annotation, time.Now().String())
			})
		})(ctx, cfg)
	}
}

// TestCheckLetsMaskedFieldsChangeAllTheTime, such as when a program has looked at something the last time.
func TestCheckLetsMaskedFieldsChangeAllTheTime(t *testing.T) {
	s := greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		for ctx.Err() == nil {
			if err := right(ctx, g, c); err != nil {
				return err
			}
			if err := annotate(ctx, c, "looked", time.Now().String()); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Second):
			}
			now, err := c.greetings.Namespace("default").Get(ctx, g.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			g = now
		}
		return nil
	}))
	s.Server.Roles, s.User, s.Budget = nil, "", 100*time.Millisecond
	require.Equal(t, "comes to rest", first(t, s).Rule)
	s.Mask = func(o *unstructured.Unstructured) {
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations", "looked")
	}
	reconciletest.Check(t, s)
}

// TestWhatIsMaskedMayBeWrittenOnTheWay, such as how far a program is. It is at work then.
func TestWhatIsMaskedMayBeWrittenOnTheWay(t *testing.T) {
	s := unusualScenario("a status with a resourceVersion")
	s.Run = plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		done, _, _ := unstructured.NestedString(g.Object, "status", "done")
		if len(done) == 4 {
			return right(ctx, g, c)
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Second):
		}
		return setStatus(ctx, c, g, map[string]any{"done": done + "x"})
	})
	s.Mask = func(o *unstructured.Unstructured) { unstructured.RemoveNestedField(o.Object, "status", "done") }
	s.Steps = reconciletest.ApplyYAML(greeting("hello"), greeting("bye"))
	s.Replay = "v1 seed=0 steps=2: late greetings in step 1"
	require.Empty(t, reconciletest.Search(t, s))
}

// TestARestartMayWriteWhatIsMasked, and a finding says which fields it has written.
func TestARestartMayWriteWhatIsMasked(t *testing.T) {
	s := greets(startsWith("started"))
	s.Replay = "v1 seed=0 steps=1: "
	found := reconciletest.Search(t, s)
	require.Len(t, found, 1)
	require.Contains(t, found[0].String(), "2: update configmaps default/a: 200, which changes "+
		".metadata.annotations.started\n")
	s.Mask = func(o *unstructured.Unstructured) {
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations", "started")
	}
	require.Empty(t, reconciletest.Search(t, s))
	// The field managers of one second are in the order of their names, and those of two in that of the times.
	s.Replay = "v1 seed=0 steps=1: touch before update configmaps #1"
	require.Empty(t, reconciletest.Search(t, s))
}

func TestCheckFindsNothingInTheGreeter(t *testing.T) { reconciletest.Check(t, greets(runGreeter)) }

// TestCheckIsDeterministic is about programs on this library: the same schedule is the same run, to the nanosecond, on
// however many processors.
func TestCheckIsDeterministic(t *testing.T) {
	processors := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(processors)
	for _, schedule := range []string{
		"v1 seed=0 steps=3: ",
		"v1 seed=7 steps=3: crash after create configmaps #1; late greetings in step 2",
		"v1 seed=0 steps=3: back to create configmaps #1; back to update configmaps #1; back to update configmaps #2",
		"v1 seed=9 steps=3: second at update configmaps #1; 500 to watch greetings #1; 500 to watch greetings #2",
	} {
		var first string
		for i, n := range []int{1, 2, 4, 8} {
			runtime.GOMAXPROCS(n)
			all := reconciletest.Traces(t, greets(runGreeter), schedule, 25)
			if i == 0 {
				first = all[0]
				require.Contains(t, first, "step 3")
			}
			for _, other := range all {
				require.Equal(t, first, other, "%s with GOMAXPROCS=%d", schedule, n)
			}
		}
	}
	var seeded []string
	for seed := range 2 {
		seeded = append(seeded, reconciletest.Traces(t, greets(runGreeter), fmt.Sprintf(
			"v1 seed=%d steps=1: 500 to watch greetings #1; 500 to watch greetings #2", seed), 1)...)
	}
	require.NotEqual(t, seeded[0], seeded[1], "the seed decides what the library draws")
}

// plain is a greeter without a library: it lists, and waits for a watch. What a Greeting asks for is done by greet.
func plain(greet func(ctx context.Context, g *unstructured.Unstructured, c clients) error) func(context.Context,
	*rest.Config) error {
	return plainAt("", greet)
}

// plainAt lists at a version: 0 is any, so that the answer may come from a cache.
func plainAt(version string, greet func(ctx context.Context, g *unstructured.Unstructured, c clients) error) func(
	context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		core, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		all, err := dynamic.NewForConfig(cfg)
		if err != nil {
			return err
		}
		c := clients{core: core, greetings: all.Resource(greetings), listAt: version}
		for wait := time.Second; ctx.Err() == nil; wait = min(2*wait, 20*time.Second) {
			if c.round(ctx, greet) == nil {
				wait = time.Second
				continue
			}
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
		}
		return nil
	}
}

type clients struct {
	core      kubernetes.Interface
	greetings dynamic.NamespaceableResourceInterface
	listAt    string
}

// round greets everybody, and waits until a Greeting or a ConfigMap changes.
func (c clients) round(ctx context.Context,
	greet func(context.Context, *unstructured.Unstructured, clients) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	list, err := c.greetings.List(ctx, metav1.ListOptions{ResourceVersion: c.listAt})
	if err != nil {
		return err
	}
	since := metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}
	changed, err := c.greetings.Watch(ctx, since)
	if err != nil {
		return err
	}
	defer changed.Stop()
	made, err := c.core.CoreV1().ConfigMaps("default").Watch(ctx, since)
	if err != nil {
		return err
	}
	defer made.Stop()
	for _, g := range list.Items {
		if err := greet(ctx, &g, c); err != nil {
			return err
		}
	}
	select {
	case <-changed.ResultChan():
	case <-made.ResultChan():
	case <-ctx.Done():
	}
	return nil
}

// right is a greeter without a mistake.
func right(ctx context.Context, g *unstructured.Unstructured, c clients) error {
	text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
	maps := c.core.CoreV1().ConfigMaps(g.GetNamespace())
	m, err := maps.Get(ctx, g.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		m = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: g.GetName(), OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "example.com/v1", Kind: "Greeting", Name: g.GetName(), UID: g.GetUID()}}},
			Data: map[string]string{"text": text}}
		_, err = maps.Create(ctx, m, metav1.CreateOptions{})
		return err
	case err != nil:
		return err
	case m.Data["text"] == text:
		return nil
	}
	m.Data = map[string]string{"text": text}
	_, err = maps.Update(ctx, m, metav1.UpdateOptions{})
	return err
}

func TestCheckFindsNothingInAPlainProgram(t *testing.T) { reconciletest.Check(t, greets(plain(right))) }

// TestCheckFinds is about each rule: a program that breaks it.
func TestCheckFinds(t *testing.T) {
	for rule, sc := range map[string]func() reconciletest.Scenario{
		"comes to rest": func() reconciletest.Scenario {
			n := 0
			return greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
				if err := right(ctx, g, c); err != nil {
					return err
				}
				n++
				return annotate(ctx, c, "note", fmt.Sprint(n))
			}))
		},
		"converges": func() reconciletest.Scenario {
			return greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
				if _, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{}); err == nil &&
					g.GetGeneration() > 2 {
					return nil // it has looked twice, and takes the third for the same
				}
				return right(ctx, g, c)
			}))
		},
		"is idempotent": func() reconciletest.Scenario { return greets(startsWith("started")) },
		"is reversible": func() reconciletest.Scenario {
			return greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
				if err := right(ctx, g, c); err != nil {
					return err
				}
				text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
				return makeMap(ctx, c, g, "a-"+text)
			}))
		},
		"ends alike": func() reconciletest.Scenario {
			return greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
				_, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
				isNew := apierrors.IsNotFound(err)
				if err := right(ctx, g, c); err != nil || !isNew {
					return err
				}
				return annotate(ctx, c, "second", "write") // which a crash before it prevents for ever
			}))
		},
		"Always": func() reconciletest.Scenario {
			s := greets(plain(right))
			s.Always = func(w reconciletest.Write, _ *reconciletest.Server) error {
				if w.Incarnation > 1 && w.Old == nil {
					return fmt.Errorf("%s is made again", w.New.GetName())
				}
				return nil
			}
			return s
		},
		"has the rights that it needs": func() reconciletest.Scenario {
			return greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
				_, _ = c.core.CoreV1().Secrets("default").Get(ctx, "a", metav1.GetOptions{})
				return right(ctx, g, c)
			}))
		},
		"leaves alone what belongs to others": func() reconciletest.Scenario {
			return greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
				text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
				m, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
				if err != nil || m.Data["text"] == text {
					return right(ctx, g, c)
				}
				m.Annotations, m.ResourceVersion = nil, ""
				m.Data = map[string]string{"text": text}
				_, err = c.core.CoreV1().ConfigMaps("default").Update(ctx, m, metav1.UpdateOptions{})
				return err
			}))
		},
		"repeats a write that failed": func() reconciletest.Scenario {
			return greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
				text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
				m, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
				if err != nil || m.Data["text"] == text {
					return right(ctx, g, c)
				}
				m.Data = map[string]string{"text": text}
				_, _ = c.core.CoreV1().ConfigMaps("default").Update(ctx, m, metav1.UpdateOptions{})
				return nil
			}))
		},
		"waits as long as the server asks": func() reconciletest.Scenario {
			return greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
				text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
				m, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
				if err != nil || m.Data["text"] == text {
					return right(ctx, g, c)
				}
				m.Data = map[string]string{"text": text}
				for {
					err := c.core.CoreV1().RESTClient().Put().MaxRetries(0).Namespace("default").
						Resource("configmaps").Name("a").Body(m).Do(ctx).Error()
					if !apierrors.IsTooManyRequests(err) {
						return err
					}
				}
			}))
		},
		"does not insist on a conflict": func() reconciletest.Scenario {
			return greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
				text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
				m, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
				if err != nil || m.Data["text"] == text {
					return right(ctx, g, c)
				}
				m.Data = map[string]string{"text": text}
				for range 100 { // with the version that it has read once
					if _, err = c.core.CoreV1().ConfigMaps("default").Update(ctx, m,
						metav1.UpdateOptions{}); err == nil {
						break
					}
				}
				return err
			}))
		},
		"is quiet at rest": func() reconciletest.Scenario {
			return greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
				if err := right(ctx, g, c); err != nil {
					return err
				}
				for range 100_000 { // every 20 ms, in place of a watch
					m, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
					now, liveErr := c.greetings.Namespace("default").Get(ctx, "a", metav1.GetOptions{})
					if err != nil || liveErr != nil || len(m.Data) == 0 ||
						now.GetResourceVersion() != g.GetResourceVersion() {
						break
					}
					time.Sleep(20 * time.Millisecond)
				}
				return nil
			}))
		},
		"leaves no goroutine behind": func() reconciletest.Scenario {
			return greets(plain(leaves))
		},
		"runs until its ctx ends": func() reconciletest.Scenario {
			return greets(func(context.Context, *rest.Config) error { return errors.New("no luck today") })
		},
		"the step works": func() reconciletest.Scenario {
			s := greets(plain(right))
			s.Steps = reconciletest.ApplyYAML("apiVersion: v1\nkind: Unknown\nmetadata: {name: a}\n")
			return s
		},
	} {
		t.Run(rule, func(t *testing.T) {
			found := first(t, sc())
			require.Equal(t, rule, found.Rule, found)
			require.LessOrEqual(t, len(found.Timeline), 20)

			again := sc()
			again.Replay = found.Replay
			require.NotEmpty(t, reconciletest.Search(t, again), "the replay %q finds nothing", found.Replay)
		})
	}
}

// first returns what Check finds first.
func first(t *testing.T, s reconciletest.Scenario) *reconciletest.Finding {
	t.Helper()
	s.Findings = 1
	all := reconciletest.Search(t, s)
	require.NotEmpty(t, all)
	return all[0]
}

// annotate writes an annotation to the ConfigMap.
func annotate(ctx context.Context, c clients, name, value string) error {
	m, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
	if err != nil || m.Annotations[name] == value {
		return err
	}
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, name, value)
	_, err = c.core.CoreV1().ConfigMaps("default").Update(ctx, m, metav1.UpdateOptions{})
	return err
}

// TestCheckDisturbsWhatADisturbanceCauses is about a mistake in the second try of a write. There is no second try when
// nothing goes wrong, so no single disturbance and no random schedule meets it.
func TestCheckDisturbsWhatADisturbanceCauses(t *testing.T) {
	s := greets(givesUp(func(first, second error) bool {
		return apierrors.ReasonForError(first) != apierrors.ReasonForError(second)
	}))
	s.Steps, s.Budget = s.Steps[:1], time.Minute
	found := first(t, s)
	require.Contains(t, found.Replay, "; ", "it needs two")
}

// TestCheckHidesAWriteWhoseAnswerIsLost is about a program that makes an object with a generated name. Either its
// memory or its cache keeps it from making another one, so two things have to go wrong, and the budget is for none.
func TestCheckHidesAWriteWhoseAnswerIsLost(t *testing.T) {
	s := greets(mint)
	s.Server.Roles, s.User, s.Settled = nil, "", nil
	s.Steps, s.Budget = s.Steps[:1], time.Nanosecond
	found := first(t, s)
	require.Equal(t, "ends alike", found.Rule)
	require.Contains(t, found.Replay, ": lose answer to create configmaps #1; late configmaps in step 1")
}

// mint makes one ConfigMap when there is a Greeting, unless it has made one or its cache has one.
func mint(ctx context.Context, cfg *rest.Config) error {
	core, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	all, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	made, configMaps := false, core.CoreV1().ConfigMaps("default")
	round := func() error {
		list, err := configMaps.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		changes, err := configMaps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		if err != nil {
			return err
		}
		defer changes.Stop()
		for seen := len(list.Items); ; {
			asked, err := all.Resource(greetings).List(ctx, metav1.ListOptions{})
			if err == nil && len(asked.Items) > 0 && seen == 0 && !made {
				_, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}},
					metav1.CreateOptions{})
				made = err == nil
			}
			select {
			case change, ok := <-changes.ResultChan():
				switch {
				case !ok:
					return nil
				case change.Type == watch.Added:
					seen++
				case change.Type == watch.Deleted:
					seen, made = seen-1, false
				}
			case <-time.After(time.Second):
			case <-ctx.Done():
				return nil
			}
		}
	}
	for ctx.Err() == nil {
		if err := round(); err != nil {
			time.Sleep(time.Second)
		}
	}
	return nil
}

// TestCheckRefusesForAWhile is about a program that tries a write twice, and not a third time.
func TestCheckRefusesForAWhile(t *testing.T) {
	s := greets(givesUp(func(_, _ error) bool { return true }))
	s.Steps, s.Budget = s.Steps[:1], time.Millisecond
	found := first(t, s)
	require.Contains(t, found.Replay, ": 500 for 20 s from create configmaps #1")
	require.Equal(t, "repeats a write that failed", found.Rule)
}

// TestAProgramThatEndsIsStartedAgainAsByAKubelet, and so may end when the API fails for a while.
func TestAProgramThatEndsIsStartedAgainAsByAKubelet(t *testing.T) {
	s := greets(func(ctx context.Context, cfg *rest.Config) error {
		core, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		begun := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "begun"}}
		_, err = core.CoreV1().ConfigMaps("default").Create(ctx, begun, metav1.CreateOptions{})
		if ignoreThere(err) != nil {
			return err
		}
		return plain(right)(ctx, cfg)
	})
	s.Replay = "v1 seed=0 steps=3: 500 for 20 s from create configmaps #1"
	require.Empty(t, reconciletest.Search(t, s))
}

// TestCheckLeavesLuckOut has a program that fails in two of three runs. That is too seldom to be judged, whatever
// disturbs it.
func TestCheckLeavesLuckOut(t *testing.T) {
	runs := 0
	s := greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		if runs%3 != 0 {
			return nil
		}
		return right(ctx, g, c)
	}))
	count := reconciletest.StepFunc("count", func(context.Context, *rest.Config) error { runs++; return nil })
	s.Steps, s.Budget = []reconciletest.Step{count, s.Steps[0]}, time.Millisecond
	require.Empty(t, reconciletest.Search(t, s))
}

// TestCheckLearnsWhatLuckHides has a program without a mistake, whose status says what it has seen. If it starts when
// all is over, it sees that only by luck, and does so in the first of the runs from which Check learns.
func TestCheckLearnsWhatLuckHides(t *testing.T) {
	runs := 0
	s := greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		if err := right(ctx, g, c); err != nil {
			return err
		}
		if runs == 3 { // two runs in which nothing goes wrong differ
			if _, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{}); err != nil {
				return err
			}
		}
		if text, _, _ := unstructured.NestedString(g.Object, "spec", "text"); text == "hello" || runs == 4 {
			return setStatus(ctx, c, g, map[string]any{"greeted": "hello"})
		}
		return nil
	}))
	s.Server = reconciletest.Options{Resources: []reconciletest.Resource{{GroupVersionResource: greetings,
		Kind: "Greeting", Status: true}}}
	count := reconciletest.StepFunc("count", func(context.Context, *rest.Config) error { runs++; return nil })
	s.Steps = append([]reconciletest.Step{count}, s.Steps[:2]...)
	s.User, s.Settled, s.Budget = "", nil, time.Millisecond
	reconciletest.Check(t, s)
}

// TestCheckBelievesAWriteThatMustNotHappen although only every third run with the disturbance has it.
func TestCheckBelievesAWriteThatMustNotHappen(t *testing.T) {
	runs := 0
	s := greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		err := right(ctx, g, c)
		if err != nil && runs%3 == 0 {
			_, _ = c.core.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: "bad"}}, metav1.CreateOptions{})
		}
		return err
	}))
	s.Always = func(w reconciletest.Write, _ *reconciletest.Server) error {
		if w.New != nil && w.New.GetName() == "bad" {
			return errors.New("the bad one is made")
		}
		return nil
	}
	count := reconciletest.StepFunc("count", func(context.Context, *rest.Config) error { runs++; return nil })
	s.Steps, s.Budget = []reconciletest.Step{count, s.Steps[0]}, time.Millisecond
	found := first(t, s)
	require.Equal(t, "Always", found.Rule, found)
	s.Replay = found.Replay
	require.NotEmpty(t, reconciletest.Search(t, s), "the replay %q finds nothing", found.Replay)
}

// TestAnAlwaysFindingKeepsWhatMakesItCertain is about a write that must not happen: with two crashes it always does,
// and with one in some runs.
func TestAnAlwaysFindingKeepsWhatMakesItCertain(t *testing.T) {
	s, luck := greets(plain(right)), 0
	s.Always = func(w reconciletest.Write, _ *reconciletest.Server) error {
		if w.Incarnation == 2 {
			luck++
		}
		if w.Incarnation == 3 || w.Incarnation == 2 && luck%3 == 1 {
			return errors.New("it is written after a crash")
		}
		return nil
	}
	const both = "v1 seed=0 steps=1: crash before create configmaps #1; crash before create configmaps #2"
	s.Steps = s.Steps[:1]
	require.Equal(t, both, reconciletest.Shrunk(t, s, both))
}

// TestAStepThatComesEarly waits until the object that it applies is gone, as a user does who makes it anew: applied to
// an object that is being deleted, it would be lost.
func TestAStepThatComesEarly(t *testing.T) {
	s := greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		switch deleted := g.GetDeletionTimestamp() != nil; {
		case deleted:
			err := c.core.CoreV1().ConfigMaps(g.GetNamespace()).Delete(ctx, g.GetName(), metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			g.SetFinalizers(nil)
		case g.GetFinalizers() == nil:
			g.SetFinalizers([]string{"example.com/greeter"})
		default:
			return right(ctx, g, c)
		}
		_, err := c.greetings.Namespace(g.GetNamespace()).Update(ctx, g, metav1.UpdateOptions{})
		return err
	}))
	s.Server.Roles, s.User = nil, ""
	s.Steps[1] = reconciletest.Delete("greetings.example.com", "default", "a")
	s.Replay = "v1 seed=0 steps=3: next step at delete configmaps #1"
	require.Empty(t, reconciletest.Search(t, s))
	require.Contains(t, reconciletest.Traces(t, s, s.Replay, 1)[0], "next step at delete configmaps #1")
}

// TestAColdStartLetsAUserMakeAnew what a finalizer of its manifest keeps: that waits for the program, which is down
// again afterwards.
func TestAColdStartLetsAUserMakeAnew(t *testing.T) {
	s := greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		if g.GetDeletionTimestamp() == nil {
			return right(ctx, g, c)
		}
		g.SetFinalizers(nil)
		_, err := c.greetings.Namespace(g.GetNamespace()).Update(ctx, g, metav1.UpdateOptions{})
		return err
	}))
	s.Server.Roles, s.User = nil, ""
	kept := func(text string) string {
		return strings.Replace(greeting(text), "metadata: {", "metadata: {finalizers: [example.com/greeter], ", 1)
	}
	s.Steps = reconciletest.ApplyYAML(kept("hello"), kept("hello"), kept("hello"))
	s.Steps[1] = reconciletest.Delete("greetings.example.com", "default", "a")
	s.Replay = "v1 seed=0 steps=3: cold start"
	trace := reconciletest.Traces(t, s, s.Replay, 1)[0]
	require.Regexp(t, `(?s)step 2.*start of incarnation 1.*CRASH.*step 3.*start of incarnation 2`, trace)
	require.Empty(t, reconciletest.Search(t, s))
}

// TestAColdStartIsCold also while a user waits for what does not need the program: here for the garbage collector. The
// program adds what it sees to what it has seen before, and so must not see what a step has left.
func TestAColdStartIsCold(t *testing.T) {
	s := greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		text, _, _ := unstructured.NestedString(g.Object, "spec", "text")
		if err := makeMap(ctx, c, g, "a"); err != nil {
			return err
		}
		m, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
		if err != nil || strings.HasSuffix(m.Data["text"], text) {
			return err
		}
		m.Data = map[string]string{"text": m.Data["text"] + " " + text}
		_, err = c.core.CoreV1().ConfigMaps("default").Update(ctx, m, metav1.UpdateOptions{})
		return err
	}))
	s.Server.Roles, s.User, s.Settled = nil, "", nil
	const secret = "\n---\n{apiVersion: v1, kind: Secret, metadata: {name: a}}\n"
	s.Steps = reconciletest.ApplyYAML(greeting("one")+secret, "", greeting("two")+secret)
	s.Steps[1] = reconciletest.DeleteWith(metav1.DeletePropagationForeground, "secrets", "default", "a")
	s.Replay = "v1 seed=0 steps=3: cold start"
	require.Equal(t, "ends alike", first(t, s).Rule)
	trace := reconciletest.Traces(t, s, s.Replay, 1)[0]
	require.Regexp(t, `(?s)step 3.*start of incarnation 1.*`, trace)
	require.NotRegexp(t, `(?s)start of incarnation 1.*step 3`, trace)
}

// TestAColdStartIsDownAgain when the webhook that a user has waited for was called.
func TestAColdStartIsDownAgain(t *testing.T) {
	s := greets(plain(right))
	s.Server.Roles, s.User = nil, ""
	served := false
	s.Run = func(ctx context.Context, cfg *rest.Config) error {
		served = true
		return plain(right)(ctx, cfg)
	}
	s.Server.Manifests = []string{"testdata/webhooks.yaml"}
	s.Server.Webhooks = map[string]http.Handler{"judge.judges.svc": http.HandlerFunc(
		func(w http.ResponseWriter, req *http.Request) {
			if !served {
				http.Error(w, "it is down", http.StatusServiceUnavailable)
				return
			}
			allow(&atomic.Int64{})(w, req)
		})}
	s.Steps = reconciletest.ApplyYAML(greeting("hello"),
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: mine}}", greeting("hello"))
	trace := reconciletest.Traces(t, s, "v1 seed=0 steps=3: cold start", 1)[0]
	require.Regexp(t, `(?s)step 2.*tries again.*start of incarnation 1.*CRASH of incarnation 1.*step 3.*`+
		`start of incarnation 2`, trace)
}

// givesUp returns a program that forgets a write which failed twice, with errors of some kind.
func givesUp(kind func(first, second error) bool) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		var last error
		return plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
			err := right(ctx, g, c)
			if err != nil && last != nil && kind(last, err) {
				err = nil
			}
			last = err
			return err
		})(ctx, cfg)
	}
}

// TestCheckEndsAProgramThatAsksWithoutEnd although no request changes anything.
func TestCheckEndsAProgramThatAsksWithoutEnd(t *testing.T) {
	s := greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		for ctx.Err() == nil {
			_, _ = c.core.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
		}
		return nil
	}))
	found := first(t, s)
	require.Equal(t, "comes to rest", found.Rule, found)
	require.Contains(t, found.Detail[0], "8001 requests")
}

// TestADeadProgramReachesNobody although it cleans up when its ctx ends.
func TestADeadProgramReachesNobody(t *testing.T) {
	s := greets(func(ctx context.Context, cfg *rest.Config) error {
		err := plain(right)(ctx, cfg)
		c, clientErr := kubernetes.NewForConfig(cfg)
		if clientErr != nil {
			return clientErr
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_, _ = c.CoreV1().ConfigMaps("default").Create(last, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: "good-bye"}}, metav1.CreateOptions{})
		return err
	})
	s.Always = func(w reconciletest.Write, _ *reconciletest.Server) error {
		if w.Name == "good-bye" || w.New != nil && w.New.GetName() == "good-bye" {
			return errors.New("the dead write")
		}
		return nil
	}
	require.Empty(t, reconciletest.Search(t, s))
}

// TestCheckFindsTheSameInParallel on each of two cores.
func TestCheckFindsTheSameInParallel(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	all := 0
	for _, run := range []func(context.Context, *rest.Config) error{
		plain(right),
		givesUp(func(_, _ error) bool { return true }),
		plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
			err := right(ctx, g, c)
			if err != nil { // nothing ends it
				go func() {
					for {
						time.Sleep(time.Hour)
					}
				}()
			}
			return err
		}),
	} {
		var found [2][]string
		for i, parallel := range []bool{false, true} {
			s := greets(run)
			s.Steps, s.Findings, s.Parallel = s.Steps[:1], 100, parallel
			for _, f := range reconciletest.Singles(t, s) {
				found[i] = append(found[i], fmt.Sprintf("%s %d %s", f.Rule, f.Count, f.Replay))
			}
		}
		require.Equal(t, found[0], found[1])
		all += len(found[1])
	}
	require.NotZero(t, all)
	s := greets(plain(right))
	s.Parallel = true
	want, ended := reconciletest.Order(t, s, 10)
	require.Equal(t, want, ended)
}

// TestCheckReportsWhatItTried is about what go test -v shows.
func TestCheckReportsWhatItTried(t *testing.T) {
	report := reconciletest.Report(t, greets(plain(right)))
	t.Log(report)
	for _, line := range []string{
		`\n  at writes: crash before 3, crash after 3, `, `\n  at reads: 500 `,
		`\n  at steps: cold start 2, unseen steps 2, slow 1, down 3, `,
		`\n  happened, and the program asked for the same as without: .*slow`,
		`\n  each write x each disturbance at it, happened: create configmaps 11 of 11, update configmaps 23 of 23\n`,
		`\n  each read x each disturbance at it, happened: get configmaps 12 of 12, list greetings 14 of 14, `,
		`\n  granted, and used in no run: list configmaps, get greetings.example.com\n`,
		`\n    kind: ClusterRole\n`,
		`\n    - {apiGroups: \[""\], resources: \[configmaps\], verbs: \[create, get, update, watch\]}\n`,
		`\n    - {apiGroups: \[example.com\], resources: \[greetings\], verbs: \[list, watch\]}$`,
	} {
		require.Regexp(t, line, report)
	}
}

// TestCheckDoesNotJudgeRightsThatNothingAsksFor: what a real server asks for, and this one does not, is needed.
func TestCheckDoesNotJudgeRightsThatNothingAsksFor(t *testing.T) {
	s := greets(plain(right))
	s.Server.Roles = append(s.Server.Roles, "testdata/config/more.yaml")
	report := reconciletest.Report(t, s)
	for _, line := range []string{
		`\n  granted, and used in no run: list configmaps, get greetings.example.com\n`,
		`\n  granted, and not judged, as only a real server asks for it: update greetings/finalizers.example.com, ` +
			`escalate clusterroles.rbac.authorization.k8s.io\n`,
	} {
		require.Regexp(t, line, report)
	}
}

// TestCheckStopsAtItsLimit also before the schedules with one disturbance, one of which finds something. A budget that
// is longer than the limit does not count.
func TestCheckStopsAtItsLimit(t *testing.T) {
	s := greets(givesUp(func(_, _ error) bool { return true }))
	s.Limit, s.Budget = time.Nanosecond, time.Hour
	require.True(t, reconciletest.Untried(t, s), "silence would say nothing of the program")
	require.Empty(t, reconciletest.Search(t, s))
	require.Regexp(t, `; the limit has left out \d+ of the \d+ schedules with one disturbance, and all with several\n`,
		reconciletest.Report(t, s))
	s.Run, s.Limit = plain(right), time.Hour
	require.Regexp(t, `^\d+ of the \d+ pairs that are always tried, and all others$`, reconciletest.LeftOut(t, s))
	s.Off = []string{"down", "down over", "unseen", "lose answer"}
	require.Equal(t, "schedules with several disturbances", reconciletest.LeftOut(t, s), "there are no such pairs")
	s.Run, s.Off = greets(givesUp(func(_, _ error) bool { return true })).Run, nil
	s.Limit, s.Findings = time.Hour, 1
	require.NotEmpty(t, reconciletest.Search(t, s))
	require.False(t, reconciletest.Untried(t, s))
}

func TestCheckTakesItsTimesFromTheEnvironment(t *testing.T) {
	of := func(s reconciletest.Scenario) [2]time.Duration {
		budget, limit, err := reconciletest.Durations(s)
		require.NoError(t, err)
		return [2]time.Duration{budget, limit}
	}
	own := reconciletest.Scenario{Budget: time.Second, Limit: time.Minute}
	require.Equal(t, [2]time.Duration{2 * time.Second, 0}, of(reconciletest.Scenario{}))
	require.Equal(t, [2]time.Duration{time.Second, time.Minute}, of(own))
	t.Setenv("RECONCILETEST_BUDGET", "3s")
	require.Equal(t, [2]time.Duration{3 * time.Second, time.Minute}, of(own))
	t.Setenv("RECONCILETEST_LIMIT", "4s")
	require.Equal(t, [2]time.Duration{3 * time.Second, 4 * time.Second}, of(own))
	for _, wrong := range []string{"4", "-4s"} {
		t.Setenv("RECONCILETEST_LIMIT", wrong)
		_, _, err := reconciletest.Durations(own)
		require.ErrorContains(t, err, `RECONCILETEST_LIMIT is "`+wrong+`": it is a duration such as 10m`)
	}
}

// TestCheckNamesAProgramThatIgnoresItsContext is not a deadlock of the bubble.
func TestCheckNamesAProgramThatIgnoresItsContext(t *testing.T) {
	found := first(t, greets(func(ctx context.Context, cfg *rest.Config) error {
		go func() { _ = plain(right)(ctx, cfg) }()
		select {}
	}))
	require.NotNil(t, found)
	require.Equal(t, "ends with its ctx", found.Rule, found)
}

func TestCheckRefusesAScenarioThatIsWrong(t *testing.T) {
	for wrong, change := range map[string]func(*reconciletest.Scenario){
		"Scenario.Run is nil":     func(s *reconciletest.Scenario) { s.Run = nil },
		"Scenario.Steps is empty": func(s *reconciletest.Scenario) { s.Steps = nil },
		"Scenario.Steps[0] is empty": func(s *reconciletest.Scenario) {
			s.Steps = make([]reconciletest.Step,
				1)
		},
		"Scenario.Budget is -1s":          func(s *reconciletest.Scenario) { s.Budget = -time.Second },
		"Scenario.Limit is -1s":           func(s *reconciletest.Scenario) { s.Limit = -time.Second },
		"Scenario.User is empty":          func(s *reconciletest.Scenario) { s.User = "" },
		"Scenario.Server.Roles are empty": func(s *reconciletest.Scenario) { s.Server.Roles = nil },
		"Scenario.Beside[0] is nil":       func(s *reconciletest.Scenario) { s.Beside = append(s.Beside, nil) },
		`"nonsense" is no schedule`:       func(s *reconciletest.Scenario) { s.Replay = "nonsense" },
		`Scenario.World.Except[0] is "secrets"`: func(s *reconciletest.Scenario) {
			s.World = &reconciletest.World{Except: []string{"secrets"}}
		},
		"needs a Scenario.World": func(s *reconciletest.Scenario) {
			s.Replay = "v1 seed=0 steps=1: world slow with pods in step 1"
		},
		"Scenario.Explore is Exhaustive{Stale: -1}": func(s *reconciletest.Scenario) { s.Explore.Stale = -1 },
		"and the scenario has 3": func(
			s *reconciletest.Scenario) {
			s.Replay = "v1 seed=0 steps=4: slow"
		},
		`"explode step 1" is no disturbance`: func(
			s *reconciletest.Scenario) {
			s.Replay = "v1 seed=0 steps=1: explode step 1"
		},
		`"crash" names neither a request nor a`: func(
			s *reconciletest.Scenario) {
			s.Replay = "v1 seed=0 steps=1: crash"
		},
	} {
		s := greets(runGreeter)
		change(&s)
		require.ErrorContains(t, reconciletest.Validate(s), wrong)
	}
}
