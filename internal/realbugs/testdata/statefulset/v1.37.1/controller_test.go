package check

import "k8s.io/kubernetes/pkg/controller/statefulset"

var newController = statefulset.NewStatefulSetController
