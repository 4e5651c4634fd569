package check

import (
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
)

func recorder(mgr ctrl.Manager, name string) record.EventRecorder {
	return mgr.GetEventRecorderFor(name)
}
