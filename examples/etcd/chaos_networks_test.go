package main

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/thermostat-go/thermostat/examples/etcd/members"
	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster/network"
)

// network cuts or delays a part of the network for up to 25 seconds, so also for longer than replaceAfterSeconds.
func (c *chaos) network(victim string, voters []members.Listed) {
	operators := []network.End{c.operator(0), c.operator(1)}
	var others, all []network.End
	for _, m := range voters {
		all = append(all, c.pod(m.Name))
		if m.Name != victim {
			others = append(others, c.pod(m.Name))
		}
	}
	cut := func(what string, begin func() (heal func())) {
		var heal func()
		c.lasts(what, "network", time.Duration(2+c.random.IntN(24))*time.Second,
			func() error { heal = begin(); return nil }, func() error { heal(); return nil })
	}
	switch end := c.pod(victim); c.random.IntN(7) {
	case 0:
		cut("a member cut off from the others", func() func() { return c.apart(end, others...) })
	case 1:
		cut("a member that the others do not hear", func() func() { return c.oneWay([]network.End{end}, others) })
	case 2:
		cut("a member that does not hear the others", func() func() { return c.oneWay(others, []network.End{end}) })
	case 3:
		cut("a slow member", func() func() {
			by := time.Duration(20+c.random.IntN(200)) * time.Millisecond
			var heals []func()
			for _, other := range others {
				heals = append(heals, c.net.Delay(end, other, by), c.net.Delay(other, end, by))
			}
			return func() {
				for _, heal := range heals {
					heal()
				}
			}
		})
	case 4:
		cut("the operators cut off from all members", func() func() {
			there, back := c.oneWay(operators, all), c.oneWay(all, operators)
			return func() { there(); back() }
		})
	case 5:
		cut("the operators and the API server cut off from a node", func() func() {
			heal := c.apart(end, operators...)
			_ = c.ready(victim, corev1.ConditionFalse) // fails if its pod is gone or has just changed
			return func() { heal(); _ = c.ready(victim, corev1.ConditionTrue) }
		})
	default:
		i := c.random.IntN(len(operators))
		cut("an operator cut off from the API server", func() func() { return c.apart(operators[i], apiServer) })
	}
}
