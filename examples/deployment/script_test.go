package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A script is what users do to one Deployment, at random, and the same for the same seed.
type script struct {
	seed    uint64
	replica int  // of the Deployment at first
	quick   bool // a rollout has 3 s to make progress, and not ten minutes: only few, see quietTime
	first   strategy
	steps   []step
}

// step is one operation. Which of the other fields it uses depends on what is done.
type step struct {
	do       string
	n        int
	image    string
	strategy strategy
}

func (s step) String() string {
	switch {
	case s.image != "":
		return fmt.Sprintf("%s %s", s.do, s.image)
	case s.strategy != (strategy{}):
		return fmt.Sprintf("%s %v", s.do, s.strategy)
	default:
		return fmt.Sprintf("%s %d", s.do, s.n)
	}
}

// strategy is RollingUpdate with maxSurge and maxUnavailable, or without them Recreate.
type strategy struct{ surge, unavailable string }

func (s strategy) patch() string {
	if s.surge == "" {
		return `{"$retainKeys":["type"],"type":"Recreate"}`
	}
	quoted := func(v string) string {
		if strings.HasSuffix(v, "%") {
			return `"` + v + `"`
		}
		return v
	}
	return fmt.Sprintf(`{"type":"RollingUpdate","rollingUpdate":{"maxSurge":%s,"maxUnavailable":%s}}`, quoted(s.surge),
		quoted(s.unavailable))
}

// newScript makes the script of a seed. It knows what it has done, so that most of its steps have an effect.
func newScript(seed uint64) script {
	random := rand.New(rand.NewPCG(seed, 20))
	anyStrategy := func() strategy {
		shares := []string{"0", "1", "2", "3", "10%", "25%", "50%", "100%"}
		for {
			s := strategy{shares[random.IntN(len(shares))], shares[random.IntN(len(shares))]}
			if random.IntN(6) == 0 {
				return strategy{}
			}
			if s.surge != "0" || s.unavailable != "0" {
				return s
			}
		}
	}
	s := script{seed: seed, replica: random.IntN(9), quick: seed%10 == 0, first: anyStrategy()}
	images := 0
	operations := []struct {
		share int
		make  func() step
	}{
		{20, func() step { images++; return step{do: "image", image: fmt.Sprintf("good-%d", images)} }},
		{12, func() step { images++; return step{do: "image", image: fmt.Sprintf("bad-%d", images)} }},
		{6, func() step { return step{do: "image", image: fmt.Sprintf("good-%d", random.IntN(images+1))} }},
		{20, func() step { return step{do: "scale", n: random.IntN(11)} }},
		{10, func() step { return step{do: "pause or resume"} }},
		{10, func() step { return step{do: "undo"} }},
		{6, func() step { return step{do: "delete pods", n: 1 + random.IntN(3)} }},
		{6, func() step { return step{do: "fail pods", n: 1 + random.IntN(2)} }},
		{8, func() step { return step{do: "strategy", strategy: anyStrategy()} }},
		{3, func() step { return step{do: "annotate", n: random.IntN(100)} }},
		{3, func() step { return step{do: "minReadySeconds", n: random.IntN(2)} }},
		{3, func() step { return step{do: "revisionHistoryLimit", n: random.IntN(4)} }},
		{2, func() step { return step{do: "delete the new ReplicaSet"} }},
		{2, func() step { return step{do: "delete the Deployment, leave its ReplicaSets, and create it again"} }},
	}
	total := 0
	for _, o := range operations {
		total += o.share
	}
	for range 6 + random.IntN(5) {
		at := random.IntN(total)
		for _, o := range operations {
			if at -= o.share; at < 0 {
				s.steps = append(s.steps, o.make())
				break
			}
		}
	}
	return s
}
