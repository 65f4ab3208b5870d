"""The policies that an expression can name. A new policy is one file and one line here."""

from collections.abc import Mapping

from splitsecond.policies.by_complexity import by_complexity
from splitsecond.policies.by_task import by_task
from splitsecond.policies.cache import cache
from splitsecond.policies.cap import cap
from splitsecond.policies.cascade import cascade
from splitsecond.policies.cheapest import cheapest
from splitsecond.policies.deadline import deadline
from splitsecond.policies.definition import Policy
from splitsecond.policies.fallback import fallback
from splitsecond.policies.fastest import fastest
from splitsecond.policies.hedge import hedge
from splitsecond.policies.limit import limit
from splitsecond.policies.near import near
from splitsecond.policies.pipeline import pipeline
from splitsecond.policies.race import race
from splitsecond.policies.resume import resume
from splitsecond.policies.retry import retry
from splitsecond.policies.sticky import sticky
from splitsecond.policies.weighted import weighted

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
