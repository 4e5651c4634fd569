package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
)

// A simulation is a rolling update in which everything takes its time: ReplicaSet controllers act late, and report
// later, users change their minds, and pods take long to become ready. The truth is in the pods.
type simulation struct {
	d      *appsv1.Deployment
	sets   []*simulatedSet
	images int
	choose func(n int) int // one of n possibilities
	scales bool            // users scale and change maxSurge, too, and controllers are killed between two writes
	broken error           // a set grew, and all together want too much
	log    []string
}

type simulatedSet struct {
	*appsv1.ReplicaSet
	ready, starting int  // pods
	bad             bool // they never become ready
}

func newSimulation(choose func(int) int) *simulation {
	shares := []string{"0", "1", "2", "25%", "50%", "100%"}
	surge, unavailable := shares[choose(len(shares))], shares[choose(len(shares))]
	if surge == "0" && unavailable == "0" {
		surge = "1"
	}
	s := &simulation{choose: choose,
		d: deployment("web", int32(1+choose(12)), "image-0", rolling(surge, unavailable))}
	first := &simulatedSet{ReplicaSet: s.setOf("image-0", wanted(s.d)), ready: wanted(s.d)}
	first.Status.ObservedGeneration, first.Status.AvailableReplicas = 1, int32(wanted(s.d))
	s.sets = append(s.sets, first)
	return s
}

func (s *simulation) setOf(image string, n int) *appsv1.ReplicaSet {
	set := anySet(image, n, 0)
	set.Status = appsv1.ReplicaSetStatus{}
	set.Spec.Template.Spec.Containers = append(set.Spec.Template.Spec.Containers,
		s.d.Spec.Template.Spec.Containers[0])
	set.Spec.Template.Spec.Containers[0].Image = image
	set.CreationTimestamp.Time = set.CreationTimestamp.AddDate(0, 0, len(s.sets))
	set.Annotations = sizesOf(s.d)
	return set
}

// steps are all that can happen.
func (s *simulation) steps() []func() string {
	control := func() string { return s.control(10) }
	steps := []func() string{control, control, s.changeImage}
	if s.scales {
		steps = append(steps, func() string { return s.control(s.choose(3)) }, s.scale, s.changeSurge)
	}
	for _, set := range s.sets {
		steps = append(steps, func() string { return s.act(set) }, func() string { return s.act(set) },
			func() string { return s.start(set) }, func() string { return s.start(set) })
	}
	return steps
}

func (s *simulation) step() {
	steps := s.steps()
	s.log = append(s.log, steps[s.choose(len(steps))]())
}

// control is one run of the controller, which is killed after a number of writes.
func (s *simulation) control(writes int) string {
	var new *appsv1.ReplicaSet
	var old, all []*appsv1.ReplicaSet
	image := s.d.Spec.Template.Spec.Containers[0].Image
	for _, set := range s.sets {
		all = append(all, set.ReplicaSet)
		if imageOf(set.ReplicaSet) == image {
			new = set.ReplicaSet
		} else {
			old = append(old, set.ReplicaSet)
		}
	}
	var step []resize
	switch {
	case scaled(s.d, all):
		step = proportional(s.d, new, old)
	case new == nil:
		set := &simulatedSet{ReplicaSet: s.setOf(image, 0), bad: len(s.sets)%3 == 2}
		n := int32(grown(s.d, set.ReplicaSet, old))
		set.Spec.Replicas = &n
		s.sets = append(s.sets, set)
		if n > 0 {
			s.judgeGrowth(image)
		}
		return fmt.Sprintf("create %s with %d", image, n)
	case grown(s.d, new, old) != size(new):
		step = []resize{{set: new, to: grown(s.d, new, old)}}
	default:
		step = shrunk(s.d, new, old)
	}
	step = slices.DeleteFunc(step, func(r resize) bool { return r.to == size(r.set) && !r.note })
	log := "control:"
	for _, r := range step[:min(writes, len(step))] {
		log += fmt.Sprintf(" %s to %d", r.set.Name, r.to)
		grows := r.to > size(r.set)
		if n := int32(r.to); r.to != size(r.set) {
			r.set.Spec.Replicas = &n
			r.set.Generation++
		}
		r.set.Annotations = sizesOf(s.d)
		if grows {
			s.judgeGrowth(r.set.Name)
		}
	}
	return log
}

// judgeGrowth looks at what all sets want after one has grown.
func (s *simulation) judgeGrowth(name string) {
	want := 0
	for _, set := range s.sets {
		want += size(set.ReplicaSet)
	}
	if want > maxPods(s.d) {
		s.broken = fmt.Errorf("%s grew, and %d pods are wanted, %d may be", name, want, maxPods(s.d))
	}
}

// act lets the ReplicaSet controller report what there is, and then create and delete pods: those first that are not
// ready.
func (s *simulation) act(set *simulatedSet) string {
	set.Status.Replicas, set.Status.AvailableReplicas = int32(set.ready+set.starting), int32(set.ready)
	set.Status.ObservedGeneration = set.Generation
	for size(set.ReplicaSet) > set.ready+set.starting {
		set.starting++
	}
	for size(set.ReplicaSet) < set.ready+set.starting {
		if set.starting > 0 {
			set.starting--
		} else {
			set.ready--
		}
	}
	return fmt.Sprintf("%s has %d ready, %d starting", set.Name, set.ready, set.starting)
}

// start makes a pod ready.
func (s *simulation) start(set *simulatedSet) string {
	if set.starting == 0 || set.bad {
		return "-"
	}
	set.starting--
	set.ready++
	return "ready: " + set.Name
}

// changeImage is a rollout to a new image, or back to an old one.
func (s *simulation) changeImage() string {
	image := fmt.Sprintf("image-%d", s.choose(s.images+2))
	s.images = max(s.images, len(s.sets)-1)
	s.d.Spec.Template.Spec.Containers[0].Image = image
	return "image: " + image
}

// scale changes the number of replicas.
func (s *simulation) scale() string {
	n := int32(s.choose(13))
	s.d.Spec.Replicas = &n
	return fmt.Sprintf("scale to %d", n)
}

func (s *simulation) changeSurge() string {
	surge := []string{"0", "1", "2", "25%"}[s.choose(4)]
	rolling(surge, "1")(s.d)
	return "maxSurge " + surge
}

// check looks at the promises: as many ready pods as there have to be, and no more pods wanted than there may be. After
// a change of these numbers only what the controller does from then on counts: what it lets grow.
func (s *simulation) check() error {
	if s.broken != nil || s.scales {
		return s.broken
	}
	ready, want := 0, 0
	for _, set := range s.sets {
		ready, want = ready+set.ready, want+size(set.ReplicaSet)
	}
	if ready < minAvailable(s.d) {
		return fmt.Errorf("%d pods are ready, %d have to be", ready, minAvailable(s.d))
	}
	if want > maxPods(s.d) {
		return fmt.Errorf("%d pods are wanted, %d may be", want, maxPods(s.d))
	}
	return nil
}

// end lets everything happen until a good image is rolled out.
func (s *simulation) end() error {
	s.d.Spec.Template.Spec.Containers[0].Image = imageOf(s.sets[0].ReplicaSet) // this one is good
	for range 2000 {
		s.control(10)
		for _, set := range s.sets {
			s.act(set)
			s.start(set)
		}
		if err := s.check(); err != nil {
			return err
		}
		if done := !slices.ContainsFunc(s.sets[1:],
			func(set *simulatedSet) bool { return size(set.ReplicaSet) > 0 }); done &&
			s.sets[0].ready == wanted(s.d) {
			return nil
		}
	}
	return fmt.Errorf("the rollout does not end: %d are ready", s.sets[0].ready)
}

func (s *simulation) run(n int) error {
	for range n {
		s.step()
		if err := s.check(); err != nil {
			return err
		}
	}
	return s.end()
}

// Whatever the order in which things happen, the promises of maxSurge and maxUnavailable are kept, also when a rollout
// is reversed in the middle of a step, and a rollout to a good image ends.
func TestPromisesAreKeptInEveryOrder(t *testing.T) {
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 4))
		s := newSimulation(random.IntN)
		require.NoError(t, s.run(200), "seed %d: %v\n%q", seed, s.d.Spec.Strategy.RollingUpdate, s.log)
	}
}

// The same while users scale the Deployment and change maxSurge in the middle of a rollout, and the controller is
// killed between two writes, so that the annotations of the ReplicaSets differ.
func TestPromisesAreKeptWhileUsersScale(t *testing.T) {
	for seed := range uint64(10_000) {
		random := rand.New(rand.NewPCG(seed, 6))
		s := newSimulation(random.IntN)
		s.scales = true
		require.NoError(t, s.run(200), "seed %d: %q", seed, s.log)
	}
}

func FuzzPromisesAreKept(f *testing.F) {
	f.Add([]byte{0, 3, 5, 1, 2, 0, 9, 7, 3, 4, 1, 1, 0, 2, 5})
	f.Fuzz(func(t *testing.T, choices []byte) {
		i := 0
		s := newSimulation(func(n int) int {
			if i++; i > len(choices) {
				return 0
			}
			return int(choices[i-1]) % n
		})
		require.NoError(t, s.run(min(len(choices), 500)), "%v\n%q", s.d.Spec.Strategy.RollingUpdate, s.log)
	})
}
