package reconciletest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
)

// idle is a program that does nothing.
func idle(ctx context.Context, _ *rest.Config) error {
	<-ctx.Done()
	return nil
}

const podsOfWeb = `
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: %q}]}
`

func deploymentOf(replicas int, image string) string {
	return fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: %d\n"+
		"  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}"+podsOfWeb, replicas, image)
}

func statefulSetOf(replicas int, image string) string {
	return fmt.Sprintf("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: web}\nspec:\n  replicas: %d\n"+
		"  serviceName: web"+podsOfWeb, replicas, image)
}

const (
	jobManifest = `
apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: migrate}]}}}
`
	claimManifest = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`
)

func isPodReady(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// imagesOf returns the images of the pods that are ready.
func imagesOf(s *reconciletest.Server) (all []string) {
	for _, p := range reconciletest.List[*corev1.Pod](s, "pods", "default") {
		if isPodReady(p) {
			all = append(all, p.Spec.Containers[0].Image)
		}
	}
	return all
}

func isReady(s *reconciletest.Server, want int, image string) error {
	images := imagesOf(s)
	if len(images) != want || want > 0 && strings.Count(strings.Join(images, " "), image) != want {
		return fmt.Errorf("ready are pods of %v, and %d of %s are wanted", images, want, image)
	}
	return nil
}

// around is a scenario of a program that does nothing, and of a world.
func around(steps []reconciletest.Step, settled func(s *reconciletest.Server) error) reconciletest.Scenario {
	return reconciletest.Scenario{Run: idle, World: &reconciletest.World{}, Steps: steps, Settled: settled,
		Budget: 300 * time.Millisecond}
}

// TestAProgramThatDoesNothingIsNotBlamedForTheWorld is about each kind that the world does something about: it gets
// where it is to be, whatever goes wrong, and nothing of it is a finding.
func TestAProgramThatDoesNothingIsNotBlamedForTheWorld(t *testing.T) {
	for name, s := range map[string]reconciletest.Scenario{
		"deployment": around(reconciletest.ApplyYAML(deploymentOf(2, "web:1"), deploymentOf(3, "web:2"),
			deploymentOf(1, "web:2")), func(s *reconciletest.Server) error {
			d, _ := reconciletest.Get[*appsv1.Deployment](s, "deployments.apps", "default", "web")
			if d.Status.AvailableReplicas != 1 || d.Status.UpdatedReplicas != 1 || d.Status.Replicas != 1 ||
				d.Status.ObservedGeneration != d.Generation {
				return fmt.Errorf("the status is %+v", d.Status)
			}
			return isReady(s, 1, "web:2")
		}),
		"stateful set": around(reconciletest.ApplyYAML(statefulSetOf(2, "web:1"), statefulSetOf(2, "web:2"),
			statefulSetOf(1, "web:2")), func(s *reconciletest.Server) error {
			set, _ := reconciletest.Get[*appsv1.StatefulSet](s, "statefulsets.apps", "default", "web")
			if set.Status.ReadyReplicas != 1 || set.Status.CurrentRevision != set.Status.UpdateRevision {
				return fmt.Errorf("the status is %+v", set.Status)
			}
			return isReady(s, 1, "web:2")
		}),
		"job and claim": around(reconciletest.ApplyYAML(jobManifest+"---"+claimManifest),
			func(s *reconciletest.Server) error {
				job, _ := reconciletest.Get[*batchv1.Job](s, "jobs.batch", "default", "migrate")
				claim, _ := reconciletest.Get[*corev1.PersistentVolumeClaim](s, "persistentvolumeclaims", "default",
					"data")
				if job.Status.Succeeded != 1 || claim.Status.Phase != corev1.ClaimBound {
					return fmt.Errorf("the statuses are %+v and %+v", job.Status, claim.Status)
				}
				return nil
			}),
		"a step that needs it": around(append(reconciletest.ApplyYAML(claimManifest), reconciletest.StepFunc("grow",
			func(ctx context.Context, cfg *rest.Config) error {
				claims := kubernetes.NewForConfigOrDie(cfg).CoreV1().PersistentVolumeClaims("default")
				claim, err := claims.Get(ctx, "data", metav1.GetOptions{})
				if err == nil && claim.Status.Phase != corev1.ClaimBound {
					return errors.New("only a claim that is bound can grow")
				}
				return err
			})), nil),
		"deleted": around(append(reconciletest.ApplyYAML(deploymentOf(2, "web:1")),
			reconciletest.Delete("deployments.apps", "default", "web")), func(s *reconciletest.Server) error {
			return isReady(s, 0, "")
		}),
	} {
		t.Run(name, func(t *testing.T) { reconciletest.Check(t, s) })
	}
}

// TestARolloutOfTheWorldKeepsItsBounds looks at each moment of it, and at what it leaves.
func TestARolloutOfTheWorldKeepsItsBounds(t *testing.T) {
	s := around(reconciletest.ApplyYAML(deploymentOf(2, "web:1"), deploymentOf(2, "web:2")), nil)
	s.Beside = append(s.Beside, func(ctx context.Context, cfg *rest.Config) error {
		pods := kubernetes.NewForConfigOrDie(cfg).CoreV1().Pods("default")
		changes, err := pods.Watch(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		rolledOut := false
		for range changes.ResultChan() {
			list, err := pods.List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil // the run has ended
			}
			there, ready := 0, 0
			for _, p := range list.Items {
				if p.DeletionTimestamp == nil {
					there++
				}
				if isPodReady(&p) {
					ready++
				}
			}
			if rolledOut = rolledOut || ready == 2; rolledOut && (ready < 2 || there > 3) {
				t.Errorf("%d pods are there and %d of them are ready", there, ready)
			}
		}
		return nil
	})
	story := strings.Join(reconciletest.Story(t, s, "v1 seed=0 steps=2: "), "\n")
	require.Regexp(t, `the world: pods default/web-\w+-\w+ made, `, story)
	require.Regexp(t, `the world: pods default/web-\w+-\w+ ready`, story)
	require.Regexp(t, `the world: pods default/web-\w+-\w+ deleted, replicasets default/web-\w+ updated`, story)
	require.Equal(t, 4, strings.Count(story, " ready\n"), story)
	require.Equal(t, 2, strings.Count(story, " gone\n"), story)
}

// TestWhatTheWorldIsToldToDo is about the fields of World.
func TestWhatTheWorldIsToldToDo(t *testing.T) {
	for name, test := range map[string]struct {
		world   reconciletest.World
		steps   []string
		settled func(s *reconciletest.Server) error
		says    string
	}{
		"takes": {reconciletest.World{Takes: func(o reconciletest.Object) time.Duration {
			if o.GetName() == "migrate" {
				return 40 * time.Second
			}
			return time.Minute
		}}, []string{jobManifest, deploymentOf(1, "web:1")}, nil,
			` 30\.053s .* active, 0 pods failed\n +70\.053s  the world: jobs default/migrate complete\n(.*\n)+.* made` +
				`(.*\n)+ +160\.\d{3}s  the world: pods default/web-\w+-\w+ ready`},
		"a rollout to an image that never starts": {reconciletest.World{Fails: func(o reconciletest.Object) bool {
			p, ok := o.(*corev1.Pod)
			return ok && p.Spec.Containers[0].Image == "bad:1"
		}}, []string{deploymentOf(2, "web:1"), deploymentOf(2, "bad:1"), deploymentOf(2, "web:1")}, func(
			s *reconciletest.Server) error {
			return isReady(s, 2, "web:1")
		}, `step 2: .*\n(.* (made|updated)\n)+.* step 3`},
		"a job that fails": {reconciletest.World{Fails: func(o reconciletest.Object) bool {
			return o.GetName() == "migrate"
		}}, []string{jobManifest}, nil, `jobs default/migrate failed`},
		"except": {reconciletest.World{Except: []string{"replicasets"}}, []string{deploymentOf(2, "web:1")},
			func(s *reconciletest.Server) error {
				if n := len(reconciletest.List[*corev1.Pod](s, "pods", "default")); n > 0 {
					return fmt.Errorf("there are %d pods", n)
				}
				return nil
			}, `the world: replicasets default/web-\w+ made`},
		"a stateful set, in order": {reconciletest.World{}, []string{statefulSetOf(2, "web:1"),
			statefulSetOf(2, "web:2"), statefulSetOf(0, "web:2")}, nil,
			`pods default/web-0 made(.*\n)+.*web-0 ready\n(.*\n)*.*web-1 made(.*\n)+.*web-1 ready\n(.*\n)*.*step 2` +
				`(.*\n)+.*web-1 deleted(.*\n)+.*web-1 gone\n(.*\n)*.*web-1 made(.*\n)+.*web-1 ready\n(.*\n)*` +
				`.*web-0 deleted(.*\n)+.*web-0 gone\n(.*\n)*.*web-0 made(.*\n)+.*web-0 ready\n(.*\n)*.*step 3(.*\n)+` +
				`.*web-1 deleted(.*\n)+.*web-1 gone\n(.*\n)*.*web-0 deleted(.*\n)+.*web-0 gone\n`},
	} {
		t.Run(name, func(t *testing.T) {
			s := around(reconciletest.ApplyYAML(test.steps...), test.settled)
			s.World = &test.world
			s.Replay = fmt.Sprintf("v1 seed=0 steps=%d: ", len(s.Steps))
			require.Regexp(t, test.says, strings.Join(reconciletest.Story(t, s, s.Replay), "\n"))
			reconciletest.Check(t, s)
		})
	}
}

// TestTheWorldSeesWhatTheServerDoes at once: the garbage collector deletes the ReplicaSet after a second and its pods
// after another one, and those take a third one to go.
func TestTheWorldSeesWhatTheServerDoes(t *testing.T) {
	s := around(append(reconciletest.ApplyYAML(deploymentOf(1, "web:1")),
		reconciletest.Delete("deployments.apps", "default", "web")), nil)
	story := strings.Join(reconciletest.Story(t, s, "v1 seed=0 steps=2: "), "\n")
	require.Regexp(t, ` 61\.265s  step 2: delete .*\n +64\.318s  the world: pods default/web-.* gone`, story)
}

// migrates is a scenario of a program that makes a Job for a Greeting, and a ConfigMap when it has succeeded. given
// tells it what to make of a Job that is not complete: empty stands for going on.
func migrates(given func(*batchv1.Job) string) reconciletest.Scenario {
	s := greets(plain(func(ctx context.Context, g *unstructured.Unstructured, c clients) error {
		owner := []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Greeting", Name: g.GetName(),
			UID: g.GetUID()}}
		if _, err := c.core.CoreV1().ConfigMaps("default").Get(ctx, g.GetName(), metav1.GetOptions{}); err == nil {
			return nil
		}
		text := ""
		switch job, err := c.core.BatchV1().Jobs("default").Get(ctx, "migrate", metav1.GetOptions{}); {
		case apierrors.IsNotFound(err):
			job = &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "migrate", OwnerReferences: owner}}
			job.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever,
				Containers: []corev1.Container{{Name: "c", Image: "migrate"}}}
			_, err = c.core.BatchV1().Jobs("default").Create(ctx, job, metav1.CreateOptions{})
			return cmp.Or(err, errors.New("the Job has just begun"))
		case err != nil:
			return err
		case job.Status.CompletionTime != nil:
			text = "migrated"
		default:
			if text = given(job); text == "" {
				return errors.New("the Job is not complete")
			}
		}
		_, err := c.core.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{Data: map[string]string{
			"text": text}, ObjectMeta: metav1.ObjectMeta{Name: g.GetName(), OwnerReferences: owner}},
			metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}))
	s.Server.Roles, s.User = nil, ""
	s.Steps, s.Settled = s.Steps[:1], nil
	s.Off = []string{"delete jobs"} // it makes no second one
	s.World = &reconciletest.World{Takes: func(reconciletest.Object) time.Duration { return 5 * time.Second }}
	return s
}

func goesOn(*batchv1.Job) string { return "" }

// TestTheWorldShowsMistakes that nothing else shows: a Job that takes longer than the program waits, and one of which a
// pod has failed.
func TestTheWorldShowsMistakes(t *testing.T) {
	report := reconciletest.Report(t, migrates(goesOn))
	require.Regexp(t, `\n  at steps: .*, world slow 1, world fails 1\n`, report)
	for disturbance, given := range map[string]func(*batchv1.Job) string{
		"world slow with jobs in step 1": func(j *batchv1.Job) string {
			if time.Since(j.CreationTimestamp.Time) > 45*time.Second {
				return "failed"
			}
			return ""
		},
		"world fails jobs in step 1": func(j *batchv1.Job) string {
			if j.Status.Failed > 0 {
				return "failed"
			}
			return ""
		},
	} {
		t.Run(disturbance, func(t *testing.T) {
			s := migrates(given)
			s.Replay = "v1 seed=0 steps=1: " + disturbance
			found := reconciletest.Search(t, s)
			require.Len(t, found, 1)
			require.Equal(t, "ends alike", found[0].Rule)
			require.Contains(t, found[0].String(), "the world: jobs default/migrate complete")
		})
	}
}

// TestTheSameSeedIsTheSameWorld on however many processors.
func TestTheSameSeedIsTheSameWorld(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	sc := migrates(goesOn)
	sc.Run = runGreeter
	sc.Steps = reconciletest.ApplyYAML(greeting("hello")+"---\n"+deploymentOf(2, "web:1"),
		greeting("bye")+"---\n"+deploymentOf(2, "web:2")+"---\n"+jobManifest)
	for _, schedule := range []string{
		"v1 seed=0 steps=2: ",
		"v1 seed=7 steps=2: world slow with pods in step 2; crash after update configmaps #1",
		"v1 seed=9 steps=2: world fails pods in step 1; world fails jobs in step 2; late greetings in step 2",
	} {
		var first string
		for _, n := range []int{1, 2, 4} {
			runtime.GOMAXPROCS(n)
			for _, trace := range reconciletest.Traces(t, sc, schedule, 10) {
				if first == "" {
					first = trace
					require.Contains(t, first, "the world: jobs default/migrate complete")
				}
				require.Equal(t, first, trace, "%s with GOMAXPROCS=%d", schedule, n)
			}
		}
	}
}

// mirrors is a program that writes into a ConfigMap how many pods are ready in its cache: when it has heard of a
// change, and again a time after that.
func mirrors(again time.Duration) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, cfg *rest.Config) error {
		c := kubernetes.NewForConfigOrDie(cfg).CoreV1()
		list, err := c.Pods("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var mu sync.Mutex
		ready := map[string]bool{} // guarded by mu
		for _, p := range list.Items {
			ready[p.Name] = isPodReady(&p)
		}
		pods, err := c.Pods("default").Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		if err != nil {
			return err
		}
		defer pods.Stop()
		heard := make(chan struct{}, 1)
		var reader sync.WaitGroup
		defer reader.Wait()
		reader.Go(func() {
			for e := range pods.ResultChan() {
				if p, ok := e.Object.(*corev1.Pod); ok {
					mu.Lock()
					ready[p.Name] = isPodReady(p)
					mu.Unlock()
				}
				select {
				case heard <- struct{}{}:
				default:
				}
			}
		})
		requeued := time.NewTimer(time.Hour)
		for wrote := -1; ; {
			select {
			case <-ctx.Done():
				return nil
			case <-heard:
				requeued.Reset(again)
			case <-requeued.C:
			}
			mu.Lock()
			n := 0
			for _, is := range ready {
				if is {
					n++
				}
			}
			mu.Unlock()
			if n == wrote {
				continue
			}
			m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ready"}, Data: map[string]string{
				"pods": strconv.Itoa(n)}}
			if _, err = c.ConfigMaps("default").Update(ctx, m, metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
				_, err = c.ConfigMaps("default").Create(ctx, m, metav1.CreateOptions{})
			}
			if err == nil {
				wrote = n
			}
		}
	}
}

// TestWhatTheProgramSeesOfTheWorldIsTheSame on however many processors: it sees each write of the world before the next
// one, and at one instant what it asks for comes before what the world does.
func TestWhatTheProgramSeesOfTheWorldIsTheSame(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for name, takes := range map[string]time.Duration{"at once": 0, "after a second": time.Second} {
		t.Run(name, func(t *testing.T) {
			s := around(reconciletest.ApplyYAML(deploymentOf(5, "web:1"), deploymentOf(5, "web:2")), nil)
			s.Run, s.World.Takes = mirrors(time.Second), func(reconciletest.Object) time.Duration { return takes }
			var first string
			for _, n := range []int{1, 2, 4} {
				runtime.GOMAXPROCS(n)
				for _, trace := range reconciletest.Traces(t, s, "v1 seed=0 steps=2: ", 5) {
					first = cmp.Or(first, trace)
					require.Equal(t, first, trace, "with GOMAXPROCS=%d", n)
				}
			}
			require.Contains(t, first, "update configmaps default/ready")
		})
	}
}

// TestAStepLastsAsLongAsTheWorldIsAtWork, however long that is: a program that waits for it is right. What takes more
// than two hours is too much for a run, which is said.
func TestAStepLastsAsLongAsTheWorldIsAtWork(t *testing.T) {
	for takes, says := range map[time.Duration]string{15 * time.Minute: "", 75 * time.Minute: "",
		3 * time.Hour: "the world is not done"} {
		t.Run(takes.String(), func(t *testing.T) {
			s := migrates(goesOn)
			s.World.Takes = func(reconciletest.Object) time.Duration { return takes }
			s.Replay = "v1 seed=0 steps=1: "
			s.Settled = func(s *reconciletest.Server) error {
				if _, ok := reconciletest.Get[*corev1.ConfigMap](s, "configmaps", "default", "a"); !ok {
					return errors.New("the ConfigMap is missing")
				}
				return nil
			}
			found := reconciletest.Search(t, s)
			if says == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Contains(t, found[0].String(), says)
		})
	}
}

// TestWhatTheWorldCannotDoIsSaid in place of a run in which nothing happens.
func TestWhatTheWorldCannotDoIsSaid(t *testing.T) {
	s := around(reconciletest.ApplyYAML("apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: few}\n"+
		"spec: {hard: {pods: 10}}\n---\n"+deploymentOf(1, "web:1")), nil)
	s.Replay = "v1 seed=0 steps=1: "
	found := reconciletest.Search(t, s)
	require.Len(t, found, 1)
	require.Contains(t, found[0].String(), "the world cannot go on with replicasets default/web-")
}

// TestReplayOfTheWorldNamesWhatItDoes: nothing else can be slow or fail.
func TestReplayOfTheWorldNamesWhatItDoes(t *testing.T) {
	s := around(reconciletest.ApplyYAML(jobManifest), nil)
	s.World.Except = []string{"pods"}
	for disturbance, want := range map[string]string{"world slow with jobs in step 1": "",
		"world fails frobs in step 1": "frobs", "world slow with pods in step 1": "pods"} {
		s.Replay = "v1 seed=0 steps=1: " + disturbance
		if err := reconciletest.Validate(s); want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "the world does nothing about "+want)
		}
	}
}

const podThatNeeds = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: c, image: web, envFrom: [{secretRef: {name: login}}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`

// TestPodsWaitForWhatTheyNeed as on a cluster, and go on when it is there.
func TestPodsWaitForWhatTheyNeed(t *testing.T) {
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: login}\nstringData: {a: b}\n"
	for name, test := range map[string]struct {
		steps []string
		ready string
	}{
		"secret, then claim": {[]string{podThatNeeds, secret, claimManifest}, "step 3"},
		"claim, then secret": {[]string{podThatNeeds, claimManifest, secret}, "step 3"},
		"another scheduler": {[]string{"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n" +
			"spec: {schedulerName: own, containers: [{name: c, image: web}]}\n"}, ""},
		"a node that is cordoned": {[]string{"apiVersion: v1\nkind: Node\nmetadata: {name: node}\n" +
			"spec: {unschedulable: true}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: web}\n" +
			"spec: {containers: [{name: c, image: web}]}\n",
			"apiVersion: v1\nkind: Node\nmetadata: {name: node}\nspec: {unschedulable: false}\n"}, "step 2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := around(reconciletest.ApplyYAML(test.steps...), nil)
			story := strings.Join(reconciletest.Story(t, s, fmt.Sprintf("v1 seed=0 steps=%d: ", len(s.Steps))), "\n")
			if test.ready == "" {
				require.NotContains(t, story, "default/web ready")
				return
			}
			_, after, _ := strings.Cut(story, test.ready)
			require.Contains(t, after, "pods default/web ready", story)
			require.Equal(t, 1, strings.Count(story, "default/web ready"), story)
		})
	}
}

// TestRecreateWaitsUntilTheOldPodsAreGone, and does not end before them.
func TestRecreateWaitsUntilTheOldPodsAreGone(t *testing.T) {
	recreate := func(image string) string {
		return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 2\n" +
			"  strategy: {type: Recreate}" + fmt.Sprintf(podsOfWeb, image)
	}
	s := around(reconciletest.ApplyYAML(recreate("web:1"), recreate("web:2")), func(s *reconciletest.Server) error {
		return isReady(s, 2, "web:2")
	})
	s.World.Takes = func(reconciletest.Object) time.Duration { return 20 * time.Second }
	s.Replay = "v1 seed=0 steps=2: "
	require.Empty(t, reconciletest.Search(t, s))
	_, second, _ := strings.Cut(strings.Join(reconciletest.Story(t, s, s.Replay), "\n"), "step 2")
	gone, made := strings.LastIndex(second, " gone"), strings.Index(second, "pods default/web-84c49db6dd-")
	require.Positive(t, gone)
	require.Less(t, gone, made, second)
}

// TestASuspendedJobBeginsAnew when it goes on, and says meanwhile that it is suspended.
func TestASuspendedJobBeginsAnew(t *testing.T) {
	with := func(suspend bool) string {
		return fmt.Sprintf("apiVersion: batch/v1\nkind: Job\nmetadata: {name: migrate}\nspec: {suspend: %t, template: "+
			"{spec: {restartPolicy: Never, containers: [{name: c, image: migrate}]}}}\n", suspend)
	}
	s := around(reconciletest.ApplyYAML(with(true), with(false)), func(s *reconciletest.Server) error {
		job, _ := reconciletest.Get[*batchv1.Job](s, "jobs.batch", "default", "migrate")
		if job.Status.Succeeded != 1 || job.Status.CompletionTime.Sub(job.Status.StartTime.Time) < 40*time.Second {
			return fmt.Errorf("the status is %+v", job.Status)
		}
		if c := job.Status.Conditions[0]; c.Type != batchv1.JobSuspended || c.Status != corev1.ConditionFalse {
			return fmt.Errorf("the first condition is %+v", c)
		}
		return nil
	})
	s.World.Takes = func(reconciletest.Object) time.Duration { return 40 * time.Second }
	s.Replay = "v1 seed=0 steps=2: "
	require.Empty(t, reconciletest.Search(t, s))
}

// TestWhatIsTheProgramsIsCompared although the world writes into the same objects.
func TestWhatIsTheProgramsIsCompared(t *testing.T) {
	rs := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet",
		"metadata": map[string]any{"name": "a", "annotations": map[string]any{"deployment.kubernetes.io/revision": "1"},
			"ownerReferences": []any{map[string]any{"apiVersion": "example.com/v1", "kind": "Rollout", "name": "a",
				"uid": "u", "controller": true}}},
		"spec":   map[string]any{"replicas": int64(0)},
		"status": map[string]any{"replicas": int64(0), "conditions": []any{map[string]any{"type": "Own"}}}}}
	reconciletest.MaskWorld(&reconciletest.World{Except: []string{"deployments"}}, rs)
	require.Equal(t, "1", rs.GetAnnotations()["deployment.kubernetes.io/revision"])
	require.Equal(t, map[string]any{"conditions": []any{map[string]any{"type": "Own"}}}, rs.Object["status"])
	reconciletest.MaskWorld(&reconciletest.World{}, rs)
	require.NotEmpty(t, rs.Object, "it is no Deployment's")
}

// TestMinReadySecondsMayBeTakenBack, and reaches the pods that there are.
func TestMinReadySecondsMayBeTakenBack(t *testing.T) {
	with := func(seconds int) string {
		return fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 1\n"+
			"  minReadySeconds: %d"+podsOfWeb, seconds, "web")
	}
	s := around(reconciletest.ApplyYAML(with(300), with(0)), nil)
	available := false
	s.Settled = func(s *reconciletest.Server) error {
		for _, rs := range reconciletest.List[*appsv1.ReplicaSet](s, "replicasets.apps", "default") {
			available = rs.Spec.MinReadySeconds == 0 && rs.Status.AvailableReplicas == 1
		}
		if !available {
			return errors.New("the pod is not available")
		}
		return nil
	}
	s.Replay = "v1 seed=0 steps=2: "
	require.Empty(t, reconciletest.Search(t, s))
}

// TestNodesGetReady unless they fail: then they keep the taint that a server gives to new ones.
func TestNodesGetReady(t *testing.T) {
	found := reconciletest.Search(t, reconciletest.Scenario{
		Run: idle,
		World: &reconciletest.World{Fails: func(o reconciletest.Object) bool {
			return o.GetName() == "broken"
		}},
		Steps: reconciletest.ApplyYAML("apiVersion: v1\nkind: Node\nmetadata: {name: second}\n---\n" +
			"apiVersion: v1\nkind: Node\nmetadata: {name: broken}\n"),
		Replay: "v1 seed=0 steps=1: ",
		Settled: func(s *reconciletest.Server) error {
			taints := map[string]int{}
			for _, n := range reconciletest.List[*corev1.Node](s, "nodes", "") {
				taints[n.Name] = len(n.Spec.Taints)
			}
			if want := map[string]int{"node": 0, "second": 0, "broken": 1}; !maps.Equal(taints, want) {
				return fmt.Errorf("the taints are %v, want %v", taints, want)
			}
			return nil
		},
	})
	require.Empty(t, found)
}

// TestLoadBalancersGetAnAddress that lasts as long as the Service has that type, unless they fail, or somebody else has
// their class, or the program gives them one.
func TestLoadBalancersGetAnAddress(t *testing.T) {
	of := func(name, more string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s}\n"+
			"spec: {ports: [{port: 80}], %s}\n---\n", name, more)
	}
	steps := reconciletest.ApplyYAML(of("kept", "type: LoadBalancer")+of("inner", "type: LoadBalancer")+
		of("broken", "type: LoadBalancer")+of("others", "type: LoadBalancer, loadBalancerClass: example.com/a")+
		of("plain", "type: NodePort"), of("inner", "type: ClusterIP"), of("plain", "type: LoadBalancer"))
	for name, test := range map[string]struct {
		except []string
		want   []string
	}{
		"the world's":     {nil, []string{"kept", "plain"}},
		"not the world's": {[]string{"services"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := around(steps, func(s *reconciletest.Server) error {
				var got []string
				for _, service := range reconciletest.List[*corev1.Service](s, "services", "default") {
					if len(service.Status.LoadBalancer.Ingress) == 1 {
						got = append(got, service.Name)
					}
				}
				if !slices.Equal(got, test.want) {
					return fmt.Errorf("%v have an address, want %v", got, test.want)
				}
				return nil
			})
			s.World = &reconciletest.World{Except: test.except, Fails: func(o reconciletest.Object) bool {
				return o.GetName() == "broken"
			}}
			reconciletest.Check(t, s)
		})
	}
	s := around(steps, nil)
	require.Regexp(t, `\n +31\.053s  the world: services default/kept has an address\n`,
		strings.Join(reconciletest.Story(t, s, "v1 seed=0 steps=3: "), "\n"))
	service := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Service",
		"spec": map[string]any{"loadBalancerClass": "example.com/a"}, "status": map[string]any{"loadBalancer": "x"}}}
	reconciletest.MaskWorld(&reconciletest.World{}, service)
	require.Equal(t, map[string]any{"loadBalancer": "x"}, service.Object["status"], "it is not the world's")
}
