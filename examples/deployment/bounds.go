package main

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// How many pods more than wanted may there be, and how many fewer may be available?

// bounds returns maxSurge and maxUnavailable in pods. A percentage is of the wanted replicas; for maxSurge it is
// rounded up, and for maxUnavailable down. If both are 0 then, no step would be possible, so one pod may be
// unavailable.
func bounds(d *appsv1.Deployment) (surge, unavailable int) {
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return 0, 0
	}
	if rolling := d.Spec.Strategy.RollingUpdate; rolling != nil {
		surge = share(rolling.MaxSurge, wanted(d), true)
		unavailable = share(rolling.MaxUnavailable, wanted(d), false)
	}
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, min(unavailable, wanted(d))
}

// share returns v in pods: a number as it is, or a percentage of total. The API server refuses any other value.
func share(v *intstr.IntOrString, total int, up bool) int {
	if v == nil {
		return 0
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(v, total, up)
	if err != nil {
		return 0
	}
	return n
}

// maxPods returns how many pods all ReplicaSets together may want.
func maxPods(d *appsv1.Deployment) int {
	surge, _ := bounds(d)
	return wanted(d) + surge
}

// minAvailable returns how many pods have to be available.
func minAvailable(d *appsv1.Deployment) int {
	_, unavailable := bounds(d)
	return wanted(d) - unavailable
}
