package check

import (
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
)

func recorder(mgr ctrl.Manager, name string) events.EventRecorder { return mgr.GetEventRecorder(name) }
