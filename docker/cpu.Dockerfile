# Odeum on a CPU. Build in the root of a clone:
#     docker build --file docker/cpu.Dockerfile --tag odeum:cpu .
#     docker run --rm --volume "$PWD/runs:/work/runs" odeum:cpu compare digits --seeds 3
# We have not built this image: the machine that we work on has no Docker.
FROM python:3.11-slim

WORKDIR /odeum
COPY . .
RUN pip install --no-cache-dir --constraint constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu \
        "torch==2.13.0+cpu" ".[hf]" \
    && rm -rf /odeum

RUN useradd --create-home user && mkdir -p /work/runs /work/data && chown -R user /work
USER user
WORKDIR /work
ENV ODEUM_DATA=/work/data
ENTRYPOINT ["odeum"]
CMD ["--help"]
