"""The policies that an expression can name. A new policy is one file and one line here."""

from collections.abc import Mapping

from splitsecond.routing.machinery.definition import Policy
from splitsecond.routing.policies.by_complexity import by_complexity
from splitsecond.routing.policies.by_task import by_task
from splitsecond.routing.policies.cache import cache
from splitsecond.routing.policies.cap import cap
from splitsecond.routing.policies.cascade import cascade
from splitsecond.routing.policies.cheapest import cheapest
from splitsecond.routing.policies.deadline import deadline
from splitsecond.routing.policies.fallback import fallback
from splitsecond.routing.policies.fastest import fastest
from splitsecond.routing.policies.hedge import hedge
from splitsecond.routing.policies.limit import limit
from splitsecond.routing.policies.near import near
from splitsecond.routing.policies.pipeline import pipeline
from splitsecond.routing.policies.race import race
from splitsecond.routing.policies.resume import resume
from splitsecond.routing.policies.retry import retry
from splitsecond.routing.policies.split import split
from splitsecond.routing.policies.sticky import sticky
from splitsecond.routing.policies.weighted import weighted

POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        race,
        hedge,
        fallback,
        resume,
        deadline,
        retry,
        limit,
        fastest,
        cheapest,
        weighted,
        split,
        sticky,
        near,
        # policies that look into requests and answers
        cascade,
        pipeline,
        by_complexity,
        by_task,
        cap,
        cache,
    )
}
