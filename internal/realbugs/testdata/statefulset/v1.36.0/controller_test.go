package check

import "released.test/kubernetes/pkg/controller/statefulset"

var newController = statefulset.NewStatefulSetController
