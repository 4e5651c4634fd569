package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// Load that is twice what it should be doubles the pods; less load takes them back when the window has passed.
func TestLoadDoublesAndFalls(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		l.metrics.all("1400m")
		l.create(hpa("web", 1, 10, with(cpu(70))))
		require.Equal(t, 6, l.size())
		require.Equal(t, "True SucceededRescale: the HPA controller was able to update the target scale to 6",
			l.says("web", autoscalingv2.AbleToScale))
		require.Equal(t, []string{"Normal SuccessfulRescale New size: 6; reason: cpu resource utilization " +
			"(percentage " +
			"of request) above target"}, l.told())
		l.follow("web")
		l.metrics.all("350m")
		for range 20 {
			l.look()
			require.Equal(t, 6, l.size())
		}
		l.look()
		require.Equal(t, 3, l.size())
	})
}

// A new HPA is looked at at once, then every 15 s, whatever happens; a change of its spec is looked at at once, and
// moves no other look.
func TestTheClock(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		began := time.Now()
		var looks []time.Duration
		l.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Subresource == "scale" && r.Verb == "get" {
				looks = append(looks, time.Since(began).Round(time.Millisecond))
			}
			return nil
		})
		usage := 600
		change := func() { // so that each look writes a status
			usage = 1300 - usage
			l.metrics.all(fmt.Sprintf("%dm", usage))
		}
		change()
		l.create(hpa("web", 1, 10, with(cpu(65))))
		for range 100 {
			change()
			l.look()
		}
		require.Len(t, looks, 101)
		for i, at := range looks {
			require.Equal(t, time.Duration(i)*15*time.Second, at)
		}
		l.wait(7 * time.Second)
		l.patch("web", `{"spec":{"maxReplicas":9}}`)
		l.patch("web", `{"metadata":{"labels":{"a":"b"}}}`)
		l.wait(23 * time.Second)
		require.Equal(t, []time.Duration{1507 * time.Second, 1515 * time.Second, 1530 * time.Second}, looks[101:])

		l.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Subresource == "scale" {
				looks = append(looks, time.Since(began).Round(time.Millisecond))
				return reconciletest.Reset
			}
			return nil
		})
		l.wait(45 * time.Second)
		require.Equal(t, []time.Duration{1545 * time.Second, 1560 * time.Second, 1575 * time.Second}, looks[104:],
			"an error is no reason to look again sooner, or later")
	})
}

// When a process starts, the HPAs that are there take turns.
func TestLooksAreSpread(t *testing.T) {
	inLab(t, 0, func(l *lab) {
		for i := range 300 {
			l.create(hpa(fmt.Sprintf("web-%d", i), 1, 10, func(h *autoscalingv2.HorizontalPodAutoscaler) {
				h.Spec.ScaleTargetRef.Name = "web"
			}))
		}
		l.wait(time.Minute)
		bySecond := map[int]int{}
		began := time.Now()
		link := l.server.Link()
		l.link = link
		link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Subresource == "scale" {
				bySecond[int(time.Since(began)/time.Second)]++
			}
			return nil
		})
		stop := l.control()
		l.wait(15 * time.Second)
		stop()
		for second := range 15 {
			require.InDelta(t, 20, bySecond[second], 19, "%d of 300 in one second of 15", bySecond[second])
		}
	})
}

// What is remembered ends with the HPA: one of the same name begins anew.
func TestANamesake(t *testing.T) {
	inLab(t, 6, func(l *lab) {
		hpas := l.client.AutoscalingV2().HorizontalPodAutoscalers("default")
		l.metrics.all("700m")
		l.create(hpa("web", 1, 10, with(cpu(70))))
		l.wait(10 * time.Minute)
		for range 2 {
			require.NoError(t, hpas.Delete(l.t.Context(), "web", metav1.DeleteOptions{}))
			l.metrics.all("350m")
			l.create(hpa("web", 1, 10, with(cpu(70))))
			require.Equal(t, 6, l.size(), "the first recommendation is the present size")
		}
		l.wait(301 * time.Second)
		l.wait(15 * time.Second)
		require.Equal(t, 3, l.size())
	})
}

func TestNothingIsKeptOfAnHPAThatIsGone(t *testing.T) {
	b := newNotebook()
	first, namesake := hpa("web", 1, 2), hpa("web", 1, 2)
	namesake.UID = "other"
	kept, _ := b.of(first, time.Minute, noon)
	again, _ := b.of(first, time.Minute, noon)
	require.Same(t, kept, again)
	other, _ := b.of(namesake, time.Minute, noon)
	require.NotSame(t, kept, other, "even if nobody has noticed the deletion")
	b.forget(informer.KeyOf(first))
	for i := range 100 {
		h := hpa(fmt.Sprint(i), 1, 2)
		h.Namespace = "default"
		b.of(h, time.Minute, noon)
		b.rival(informer.KeyOf(h), labels.Everything(), nil)
		require.Len(t, b.byKey, 1)
		b.forget(informer.KeyOf(h))
	}
	require.Empty(t, b.byKey)
	require.Empty(t, b.selectors)
}

// What the target is may be anything with a scale subresource.
func TestTargetsOfOtherKinds(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		l.metrics.all("2")
		replicas := int32(3)
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}}
		set.Spec.Replicas, set.Spec.ServiceName = &replicas, "db"
		set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		set.Spec.Template.Labels = map[string]string{"app": "web"}
		set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
		_, err := l.client.AppsV1().StatefulSets("default").Create(l.t.Context(), set, metav1.CreateOptions{})
		require.NoError(t, err)
		l.create(hpa("db", 1, 10, with(cpu(50)), func(h *autoscalingv2.HorizontalPodAutoscaler) {
			h.Spec.ScaleTargetRef.Kind, h.Spec.ScaleTargetRef.APIVersion = "StatefulSet", "apps/v1beta9"
		}))
		made, _ := reconciletest.Get[*appsv1.StatefulSet](l.server, "statefulsets.apps", "default", "db")
		require.EqualValues(t, 6, *made.Spec.Replicas, "the version of the reference does not matter")
	})
}

func TestTargetsThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*autoscalingv2.HorizontalPodAutoscaler)
		want   string
	}{
		"no such object": {func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.ScaleTargetRef.Name = "other" },
			`deployments.apps "other" not found`},
		"no such kind": {func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.ScaleTargetRef.Kind = "Tea" },
			`no matches for kind "Tea" in group "apps"`},
		"no scale": {func(h *autoscalingv2.HorizontalPodAutoscaler) {
			h.Spec.ScaleTargetRef.Kind, h.Spec.ScaleTargetRef.APIVersion = "Job", "batch/v1"
		}, "the server could not find the requested resource"},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, 3, func(l *lab) {
				l.create(hpa("web", 1, 10, with(cpu(50)), c.change))
				require.Contains(t, l.says("web", autoscalingv2.AbleToScale),
					"False FailedGetScale: the HPA controller "+
						"was unable to get the target's current scale: ")
				require.Contains(t, l.says("web", autoscalingv2.AbleToScale), c.want)
				require.Len(t, l.told(), 1)
				require.Contains(t, l.told()[0], "Warning FailedGetScale")
				require.Nil(t, l.get("web").Status.ObservedGeneration, "nothing else is told")
			})
		})
	}
	_, err := (&targets{}).get(t.Context(), hpa("web", 1, 2, func(h *autoscalingv2.HorizontalPodAutoscaler) {
		h.Spec.ScaleTargetRef.APIVersion = "a/b/c"
	}))
	require.ErrorContains(t, err, "invalid API version in scale target reference")
}

// Discovery is repeated after half a minute, and not for each look: so a kind that is installed later is found.
func TestDiscoveryIsRepeated(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		var asked atomic.Int64
		l.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Resource.Resource == "" {
				asked.Add(1)
			}
			return nil
		})
		l.metrics.all("500m")
		l.create(hpa("web", 1, 10, with(cpu(50))))
		first := asked.Load()
		require.NotZero(t, first)
		l.wait(29 * time.Second)
		require.Equal(t, first, asked.Load())
		l.wait(time.Second)
		require.Equal(t, 2*first, asked.Load())
	})
}

// Each status of the Deployment is a conflict, which is overcome. A user who scales at the same time is not
// overwritten.
func TestConflictsOfTheScale(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		conflicts, byUser := 3, false
		l.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Subresource != "scale" || r.Verb != "update" || conflicts == 0 {
				return nil
			}
			conflicts--
			if byUser {
				l.scale("web", 4)
				return nil
			}
			d := l.deployment("web")
			d.Status.ReadyReplicas = int32(conflicts + 1)
			_, err := l.client.AppsV1().Deployments("default").UpdateStatus(l.t.Context(), d, metav1.UpdateOptions{})
			require.NoError(t, err)
			return nil
		})
		l.metrics.all("1")
		l.create(hpa("web", 1, 10, with(cpu(50))))
		require.Zero(t, conflicts)
		require.Equal(t, 6, l.size())

		l.look()
		l.metrics.all("550m")
		l.wait(15 * time.Second)
		conflicts, byUser = 1, true
		l.metrics.all("650m")
		l.wait(15 * time.Second)
		require.Equal(t, 4, l.size())
		require.Contains(t, l.says("web", autoscalingv2.AbleToScale),
			"False FailedUpdateScale: the HPA controller was "+
				"unable to update the target scale: the number of replicas was changed meanwhile")
		require.EqualValues(t, 6, l.get("web").Status.DesiredReplicas)
		require.Contains(t, strings.Join(l.told(), "\n"), "Warning FailedRescale New size: 8; reason: cpu resource "+
			"utilization (percentage of request) above target; error: ")
	})
}

// Somebody scales by hand: the next look takes it back.
func TestScaledByHand(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		l.metrics.all("500m")
		l.create(hpa("web", 2, 10, with(cpu(50))))
		l.scale("web", 12)
		l.follow("web")
		l.look()
		require.Equal(t, 10, l.size(), "maxReplicas at once")
		l.scale("web", 1)
		l.look()
		require.Equal(t, 2, l.size(), "and minReplicas")
		l.scale("web", 0)
		for range 3 {
			l.look()
		}
		require.Equal(t, 0, l.size(), "a user who scales to zero switches it off")
		require.Contains(t, l.says("web", autoscalingv2.ScalingActive), "False ScalingDisabled")
	})
}

func TestTheStatus(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		l.metrics.all("1")
		writes := 0
		l.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Subresource == "status" {
				writes++
			}
			return nil
		})
		l.create(hpa("web", 1, 10, with(cpu(50), external("q", "", "5"))))
		s := l.get("web").Status
		require.EqualValues(t, 1, *s.ObservedGeneration)
		require.EqualValues(t, []int32{3, 6}, []int32{s.CurrentReplicas, s.DesiredReplicas})
		require.Equal(t, time.Now().Unix(), s.LastScaleTime.Unix())
		require.Len(t, s.CurrentMetrics, 2)
		require.EqualValues(t, 100, *s.CurrentMetrics[0].Resource.Current.AverageUtilization)
		require.Zero(t, s.CurrentMetrics[1], "it could not be read")
		require.Contains(t, l.told(), "Warning FailedGetExternalMetric failed to get external metric q: no metrics "+
			"returned from external.metrics.k8s.io")
		scaled := s.LastScaleTime

		l.look()
		l.metrics.set(func() { l.metrics.outside["q"] = []string{"10", "20"} })
		l.metrics.all("500m")
		l.look()
		s = l.get("web").Status
		require.EqualValues(t, []int32{6, 6}, []int32{s.CurrentReplicas, s.DesiredReplicas})
		require.Equal(t, scaled.Unix(), s.LastScaleTime.Unix())
		require.Equal(t, "5", s.CurrentMetrics[1].External.Current.AverageValue.String())
		before := writes
		l.wait(time.Minute)
		require.Equal(t, before, writes, "what has not changed is not written")
	})
}

func TestAStatusThatCannotBeWritten(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		l.link.Inject(func(r reconciletest.Request) reconciletest.Fault {
			if r.Subresource == "status" {
				return reconciletest.Refuse(apierrors.NewInternalError(errors.New("no room")))
			}
			return nil
		})
		l.metrics.all("500m")
		l.create(hpa("web", 1, 10, with(cpu(50))))
		require.Contains(t, strings.Join(l.told(), "\n"), "Warning FailedUpdateStatus")
	})
}

func TestSelectors(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		l.metrics.all("500m")
		l.create(hpa("web", 1, 10, with(cpu(50))))
		require.Contains(t, l.says("web", autoscalingv2.ScalingActive), "True ValidMetricFound: the HPA was able to "+
			"successfully calculate a replica count from cpu resource utilization (percentage of request)")
		l.create(hpa("same", 1, 10, with(cpu(50)), func(h *autoscalingv2.HorizontalPodAutoscaler) {
			h.Spec.ScaleTargetRef.Name = "web"
		}))
		l.look()
		for _, name := range []string{"web", "same"} {
			require.Contains(t, l.says(name, autoscalingv2.ScalingActive), "False AmbiguousSelector: pods by selector "+
				"app=web are controlled by more than one HPA (e.g. default/")
		}
		require.Contains(t, strings.Join(l.told(), "\n"), "Warning AmbiguousSelector pods by selector app=web")
		hpas := l.client.AutoscalingV2().HorizontalPodAutoscalers("default")
		require.NoError(t, hpas.Delete(l.t.Context(), "same", metav1.DeleteOptions{}))
		l.look()
		require.Contains(t, l.says("web", autoscalingv2.ScalingActive), "True ValidMetricFound")
	})
	r := &autoscaler{notebook: newNotebook()}
	s := situated(3, cpu(50))
	s.scale.Status.Selector = ""
	_, trouble := r.findPods(s)
	s.trouble = trouble
	d := decide(s, memory{})
	require.Equal(t, "False InvalidSelector: the HPA target's scale is missing a selector",
		d.says(autoscalingv2.ScalingActive))
	require.Equal(t, event{"Warning", "SelectorRequired", "selector is required"}, d.events[0])
	s.scale.Status.Selector = "a b"
	_, s.trouble = r.findPods(s)
	d = decide(s, memory{})
	require.Contains(t, d.says(autoscalingv2.ScalingActive), "False InvalidSelector: couldn't convert selector")
	require.Equal(t, "InvalidSelector", d.events[0].reason)
	require.True(t, d.blind)
}

// Pods are found by any label of a selector that has one value, and else in the whole namespace.
func TestPodsAreFoundBySelector(t *testing.T) {
	inLab(t, 2, func(l *lab) {
		l.pod("other-0", "other")
		cfg := l.server.Config()
		r, _, err := newController(cfg, nil, "", defaults(), reconcile.Options{})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(l.t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.pods.Run(ctx) }()
		require.NoError(t, r.pods.WaitForSync(ctx))
		for selector, want := range map[string]int{"app=web": 2, "app in (web)": 2, "app in (web,other)": 3,
			"app!=web": 1, "app": 3, "app=web,tier=a": 0, "tier!=a,app=other": 1} {
			s, err := labels.Parse(selector)
			require.NoError(t, err)
			require.Len(t, r.podsOf("default", s), want, selector)
			require.Empty(t, r.podsOf("elsewhere", s))
		}
		cancel()
		require.NoError(t, <-ended)
	})
}
